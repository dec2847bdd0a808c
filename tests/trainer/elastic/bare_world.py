"""Horovod's own processes in one world, with no launcher: what its C++ side does when one of them dies."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

from testbed.local import forkserver

WORKER = Path(__file__).with_name("bare_worker.py")
ROOT = WORKER.parents[3]
GLOO_TIMEOUT_SECONDS = 600
END_SECONDS = 300
"""How long a process may take to its end. A process that waits for Gloo's time-out takes longer."""


@contextmanager
def bare_world(
    case: str, size: int, *, handler: type[RendezvousHandler] = RendezvousHandler, **environment: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start `size` processes of `bare_worker.py CASE`, by rank. None of them is there afterwards."""
    with world([str(WORKER), case], size, handler=handler, **environment) as processes:
        yield processes


@contextmanager
def world(
    script: Sequence[str],
    size: int,
    *,
    handler: type[RendezvousHandler] = RendezvousHandler,
    python: Sequence[str] | None = None,
    **environment: str,
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start `size` processes of a script with its arguments, by rank. None of them is there afterwards.

    `python`: the interpreter's command line, instead of that of the fork server.
    """
    server = RendezvousServer()
    port = server.start(handler)
    slots = get_host_assignments([HostInfo("localhost", size)], size, size)
    server.init(slots)
    base = {
        **os.environ,
        **{name: str(value) for name, value in create_run_env_vars("127.0.0.1", ["lo"], port).items()},
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_SECONDS),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    processes = [
        subprocess.Popen(
            [*(python or forkserver.python()), *script],
            env={**base, **create_slot_env_vars(slot)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for slot in slots
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        server.stop()
        server._httpd.server_close()


def run_cases(script: Sequence[str], size: int, *, python: Sequence[str] | None = None, **environment: str) -> None:
    """Run a script's cases in a world; every rank must come to the end of all of them."""
    with world(script, size, handler=RendezvousHandler, python=python, **environment) as processes:
        for code, said in map(ends, processes):
            assert code == 0, said
            assert said.endswith("all done\n"), said


def ends(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Return a process's exit code and output; None and what it has said if it does not end."""
    try:
        output, _ = process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[0]
    return process.returncode, output
