"""A real server of Google Cloud Storage on this machine: fake-gcs-server, with uploads in parts (`gcs/main.go`)."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testbed.go_program import go_program

SOURCES = Path(__file__).parent / "gcs"


@contextlib.contextmanager
def gcs_server(address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """A server on an address of this machine, whose port it chooses. Skips the test, with the reason, without Go."""
    command = [str(go_program(SOURCES)), f"{address}:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            host, _, port = server.stdout.readline().strip().rpartition(":")
            yield host, int(port)
        finally:
            server.kill()


def create_bucket(endpoint: str, name: str) -> None:
    """Make a bucket, without a library."""
    import requests

    requests.post(f"{endpoint}/storage/v1/b", json={"name": name}, timeout=20).raise_for_status()
