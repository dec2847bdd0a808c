"""A real S3 server (moto) where a cluster's pods reach it, whose objects can be held back for a while."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.staging.boto3_requests import make_client

CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
"""moto takes any."""

_Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Valve:
    """A WSGI application that holds each read of an object back until it may pass."""

    def __init__(self, behind: _Application) -> None:
        self._behind = behind
        self._free = threading.Semaphore(0)

    def let_one(self) -> None:
        """Let one more read pass."""
        self._free.release()

    def open(self) -> None:
        """Let all that come pass."""
        self._free.release(1_000_000)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer as moto does. The path of an object is `/BUCKET/KEY`."""
        if environ["REQUEST_METHOD"] == "GET" and "/" in environ["PATH_INFO"].strip("/"):
            self._free.acquire()
        return self._behind(environ, start_response)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """The server, as its clients see it."""

    endpoint: str
    valve: Valve

    def client(self) -> Any:
        """A client of boto3; the caller has set CREDENTIALS in the environment."""
        return make_client(endpoint=self.endpoint, threads=4)


@contextlib.contextmanager
def serving(address: str) -> Iterator[ObjectStore]:
    """A server on an address of this machine. No object can be read before its valve lets it."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    valve = Valve(DomainDispatcherApplication(create_backend_app))
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server(address, 0, valve, threaded=True)
    server.daemon_threads = True  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield ObjectStore(endpoint=f"http://{address}:{server.server_port}", valve=valve)
    finally:
        valve.open()
        server.shutdown()
        server.server_close()
