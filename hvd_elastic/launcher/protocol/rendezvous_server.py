"""The rendezvous server: Horovod's, with requests that are held, a barrier, and no unpickling of strangers' data."""

import logging
import re
import socketserver
import threading
from http import HTTPStatus
from typing import Any, Final, Protocol

from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from hvd_elastic.launcher.core.hosts.slot_placement import Slot, SlotKey
from hvd_elastic.launcher.protocol.horovod_messages import HorovodMessageError, Registration
from hvd_elastic.mpijob.contract import JOIN_SCOPE, SYNCED_SCOPE

logger = logging.getLogger(__name__)

GLOO_SCOPE: Final = re.compile(r"global|local_.*|cross_.*")
"""Scopes in which Gloo's processes find each other (`gloo_context.h`)."""

_BODY_LIMIT_BYTES: Final = 1 << 20
_KEY: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,4})")


class RendezvousRequests(Protocol):
    """What the server asks for the workers.

    `request_place`, `wait_at_barrier` and `initialising` block until there is an answer; None means 404.
    """

    def request_place(self, key: SlotKey) -> str | None: ...  # noqa: D102
    def wait_at_barrier(self, key: SlotKey) -> str | None: ...  # noqa: D102
    def synced(self, key: SlotKey) -> str | None: ...  # noqa: D102
    def register(self, key: SlotKey, registration: Registration) -> None: ...  # noqa: D102
    def initialising(self, rank: int) -> None: ...  # noqa: D102


class RendezvousServer(RendezvousHTTPServer):  # type: ignore[misc]
    """Horovod's key-value store, which its C++ side asks, able to serve many workers at once.

    Horovod listens on all interfaces and with a backlog of 5: of 64 workers that come together most wait a second until
    TCP tries again.
    """

    request_queue_size = 1024
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, requests: RendezvousRequests) -> None:
        super().__init__((address, 0), RendezvousRequestHandler, 0)
        self.requests = requests
        self.broken = False
        """Whether a member of the forming world has died."""
        self._thread = threading.Thread(target=self.serve_forever, name="rendezvous", daemon=True)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's full name, which takes seconds without a DNS server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that hangs up has died, and its end is reported elsewhere."""
        logger.debug("request of %s failed", client_address)

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def form(self, slots: tuple[Slot, ...]) -> None:
        """Forget what the last world's processes left and expect those of the new one."""
        self.init([_slot_info(slot) for slot in slots])
        self.broken = False

    def close(self) -> None:
        """Stop serving. Requests that are still held lose their connections when the launcher ends."""
        self.shutdown()
        self.server_close()
        self._thread.join()


class RendezvousRequestHandler(RendezvousHandler):  # type: ignore[misc]
    """Handles one request. Horovod's own elastic handler overrides `_get_value` and `_put_value` as well."""

    server: RendezvousServer

    def do_GET(self) -> None:  # noqa: N802
        """Answer, unless Gloo is looking for a process that has died while the world was forming.

        Gloo would look for it until the Gloo time-out. Any status but 200 and 404 makes it give up after three tries
        (`http_store.cc`). test_rendezvous_server.py, test_a_broken_world_fails_at_once.
        """
        if self.server.broken and GLOO_SCOPE.fullmatch(self.path.strip("/").partition("/")[0]):
            self.send_status_code(HTTPStatus.GONE)
            return
        super().do_GET()

    def do_PUT(self) -> None:  # noqa: N802
        """Store a body of at most 1 MiB."""
        if int(self.headers.get("Content-Length") or 0) > _BODY_LIMIT_BYTES:
            self.send_status_code(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        super().do_PUT()

    def _get_value(self, scope: str, key: str) -> bytes | None:
        requests = self.server.requests
        methods = {
            GET_RANK_AND_SIZE: requests.request_place,
            JOIN_SCOPE: requests.wait_at_barrier,
            SYNCED_SCOPE: requests.synced,
        }
        if scope in methods:
            match = _KEY.fullmatch(key)
            answer = methods[scope]((match[1], int(match[2]))) if match else None
            return None if answer is None else answer.encode("ascii")
        value: bytes | None = super()._get_value(scope, key)
        return value

    def _put_value(self, scope: str, key: str, value: bytes) -> None:
        if scope == PUT_WORKER_ADDRESSES:
            # Unlike Horovod, do not store it: GET must not be able to read the key in it.
            self._register(key, value)
            return
        if scope == "global" and key.isdecimal():
            self.server.requests.initialising(int(key))
        # A stock worker may have waited above, and what it says belongs to the world that it was waiting for.
        super()._put_value(scope, key, value)

    def _register(self, key: str, value: bytes) -> None:
        match = _KEY.fullmatch(key)
        try:
            if match:
                self.server.requests.register((match[1], int(match[2])), Registration.parse(value))
        except HorovodMessageError as error:
            logger.warning("refused a registration for %s from %s: %s", key, self.client_address[0], error)


def _slot_info(slot: Slot) -> SlotInfo:
    return SlotInfo(
        slot.host.alias, slot.rank, slot.local_rank, slot.cross_rank, slot.size, slot.local_size, slot.cross_size
    )
