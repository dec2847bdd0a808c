"""A real S3 server (moto) where a cluster's pods reach it, whose objects can be held back for a while."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from unittest import mock

from testbed.cluster.site import Site
from testbed.kube.kubectl import Kubectl
from testbed.s3_server import CREDENTIALS

_BUCKET: Final = "team-bucket"
_SECRET: Final = "bucket"

_Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Valve:
    """A WSGI application that holds each read of an object back until it may pass, and writes if told to."""

    def __init__(self, behind: _Application) -> None:
        self._behind = behind
        self._free = threading.Semaphore(0)
        self._may_write = threading.Event()
        self._may_write.set()

    def let_one(self) -> None:
        """Let one more read pass."""
        self._free.release()

    def open(self) -> None:
        """Let all that come pass."""
        self._free.release(1_000_000)

    @contextlib.contextmanager
    def writes_held(self) -> Iterator[None]:
        """Let no write of an object pass meanwhile."""
        self._may_write.clear()
        try:
            yield
        finally:
            self._may_write.set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer as moto does. The path of an object is `/BUCKET/KEY`."""
        if "/" in environ["PATH_INFO"].strip("/"):
            if environ["REQUEST_METHOD"] == "GET":
                self._free.acquire()
            elif environ["REQUEST_METHOD"] in ("PUT", "POST"):
                self._may_write.wait()
        return self._behind(environ, start_response)


class ObjectStore:
    """The server, as its clients see it. It can be away for a while; its objects stay."""

    def __init__(self, address: str) -> None:
        """It listens on this address of this machine from now on."""
        from moto.server import DomainDispatcherApplication, create_backend_app

        self.valve = Valve(DomainDispatcherApplication(create_backend_app))
        self.port = 0
        """Chosen as it begins; it stays the same."""
        self._address = address
        self._server: Any = None
        self.come_back()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{self._address}:{self.port}"

    def client(self) -> Any:
        """A client of boto3; the caller has set CREDENTIALS in the environment."""
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint)

    def leave(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def come_back(self) -> None:
        """Listen again, if it does not."""
        from werkzeug.serving import make_server

        if self._server is None:
            self._server = make_server(self._address, self.port, self.valve, threaded=True)
            self._server.daemon_threads = True
            self.port = self._server.server_port
            threading.Thread(target=self._server.serve_forever, daemon=True).start()


@contextlib.contextmanager
def serving(address: str) -> Iterator[ObjectStore]:
    """A server on an address of this machine. No object can be read before its valve lets it."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    store = ObjectStore(address)
    try:
        yield store
    finally:
        store.valve.open()
        store.leave()


@contextlib.contextmanager
def serving_checkpoints(site: Site, kubectl: Kubectl) -> Iterator[ObjectStore]:
    """A server with a bucket for the jobs of a namespace, and the Secret by which they get in. All can be read."""
    with serving(site.local().plane.subnets.gateway) as store, mock.patch.dict(os.environ, CREDENTIALS):
        store.valve.open()
        store.client().create_bucket(Bucket=_BUCKET)
        literals = [f"--from-literal={name}={value}" for name, value in CREDENTIALS.items()]
        kubectl("create", "secret", "generic", _SECRET, *literals)
        yield store


def checkpoints_in(store: ObjectStore) -> dict[str, Any]:
    """Return the keys of a job's description by which its checkpoints go to the bucket of `serving_checkpoints`."""
    return {
        "checkpoint": {"url": f"s3://{_BUCKET}/checkpoints", "every": 5, "endpoint": store.endpoint},
        "secrets": [_SECRET],
        "network": {"storage_ports": [store.port]},
    }
