"""The rendezvous server: Horovod's, with requests that are held, a barrier, and a token against strangers."""

import _thread
import itertools
import logging
import queue
import re
import socketserver
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final, Protocol

from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES

from hvd_elastic.launcher.core.actions import Ticket
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.launcher.protocol.admission import Admission, Proof
from hvd_elastic.launcher.protocol.gloo_store import VALUE_LIMIT_BYTES, GlooStore, GlooStoreFullError
from hvd_elastic.launcher.protocol.horovod_messages import HorovodMessageError, Registration
from hvd_elastic.mpijob.contract import (
    JOIN_SCOPE,
    RENDEZVOUS_TOKEN_HEADER,
    SHOWS_TOKEN_HEADER,
    SYNCED_SCOPE,
)
from hvd_elastic.system.background_threads import ErrorLog, start_thread

logger = logging.getLogger(__name__)

GLOO_SCOPE: Final = re.compile(r"global.*|local_.*|cross_.*")
"""Scopes in which Gloo's processes find each other (`gloo_context.h`); those of a process set have a suffix."""

READ_SECONDS: Final = 30.0
"""How long a client may keep a read waiting. Horovod's server waits 3 s: a worker on a busy host may need longer from
the connection to its request, and is reset then. Whoever only connects costs a thread for so long."""

BACKLOG: Final = 65_535
"""Connections that may wait to be accepted: as many as the kernel allows, which caps it to net.core.somaxconn (4,096
since Linux 5.4: listen(2)). All workers of a world come at once. Of those that do not fit each waits for TCP to try
again, a second and more."""

_PATH: Final = re.compile(r"/([^/]{1,512})/([^/]{1,512})")
_KEY: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,4})")
_LENGTH: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


class RendezvousRequests(Protocol):
    """What the server asks for the workers.

    `request_place`, `wait_at_barrier` and `initialising` block until there is an answer; None means 404.
    """

    def request_place(self, key: SlotKey) -> str | None: ...
    def wait_at_barrier(self, key: SlotKey) -> str | None: ...
    def synced(self, key: SlotKey) -> str | None: ...
    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None: ...
    def initialising(self, rank: int) -> None: ...


class HeldRequests:
    """Each request waits in a thread of its own, in `ask`, until the driver's thread answers its ticket."""

    def __init__(self) -> None:
        self._answers: dict[Ticket, queue.SimpleQueue[str]] = {}
        self._numbers = itertools.count(1)

    def ask(self, submit: Callable[[Ticket], None]) -> str:
        """Hand a new ticket to `submit` and wait for its answer."""
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        ticket = next(self._numbers)
        self._answers[ticket] = answer
        submit(ticket)
        return answer.get()

    def answer(self, ticket: Ticket, text: str) -> None:
        """Answer a request; does nothing if that was done already."""
        answer = self._answers.pop(ticket, None)
        if answer:
            answer.put(text)

    def answer_all(self, text: str) -> None:
        """Give all open requests the same answer."""
        for ticket in list(self._answers):
            self.answer(ticket, text)


class RendezvousServer(socketserver.ThreadingMixIn, HTTPServer):
    """The server that Horovod's C++ side and the workers ask, able to serve many of them at once.

    Horovod's own listens on all interfaces and with a backlog of 5: of 64 workers that come together most wait a second
    until TCP tries again. It answers HEAD with what it knows of the files in its working directory.
    """

    request_queue_size = BACKLOG

    def __init__(self, address: str, requests: RendezvousRequests, *, token: str) -> None:
        super().__init__((address, 0), RendezvousRequestHandler)
        self.requests = requests
        self.admission = Admission(token)
        self.store = GlooStore()
        self.broken = False
        """Whether a member of the forming world has died."""
        self._errors = ErrorLog(logger)
        self._join: Callable[[], None] = _nothing

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own. `threading.Thread` would also wait until it runs, each time."""
        _thread.start_new_thread(self.process_request_thread, (request, client_address))

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's full name, which takes seconds without a DNS server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that hangs up has died, and its end is reported elsewhere. Any other error is said."""
        error = sys.exception()
        if error is None or isinstance(error, OSError):
            logger.debug("request of %s failed: %s", client_address, error)
        else:
            self._errors.say(f"a request of {client_address[0]} failed", error)

    def start(self) -> None:
        self._join = start_thread("rendezvous", self.serve_forever, log=logger).join

    def form(self, slots: tuple[Slot, ...]) -> None:
        """Forget what the last world's processes left and expect those of the new one."""
        self.admission.form(slot.key for slot in slots)
        sizes = {}
        for slot in slots:
            sizes["global"] = slot.size
            sizes[f"local_{slot.host.alias}"] = slot.local_size
            sizes[f"cross_{slot.local_rank}"] = slot.cross_size
        self.store.form(sizes, len(slots))
        self.broken = False

    def stop(self) -> None:
        """Stop serving. Requests that are still held lose their connections when the launcher ends."""
        self.shutdown()
        self.server_close()
        self._join()


def _nothing() -> None:
    """There is no thread to wait for."""


class RendezvousRequestHandler(BaseHTTPRequestHandler):
    """Handles one request, as Horovod's elastic `RendezvousHandler` does."""

    server: RendezvousServer
    timeout = READ_SECONDS

    def do_GET(self) -> None:
        """Answer a worker's question, or with what is stored.

        Gloo would look for a process that has died while the world was forming until the Gloo time-out. Any status but
        200 and 404 makes it give up after three tries (`http_store.cc`). test_rendezvous_server.py,
        test_a_broken_world_fails_at_once.
        """
        request = self._admitted()
        if request is None:
            return
        scope, key, _ = request
        if self.server.broken and GLOO_SCOPE.fullmatch(scope):
            self._answer(HTTPStatus.GONE)
            return
        value = self._value(scope, key)
        self._answer(HTTPStatus.NOT_FOUND if value is None else HTTPStatus.OK, value or b"")

    def do_PUT(self) -> None:
        """Store a body of at most VALUE_LIMIT_BYTES, or take a registration."""
        request, length = self._admitted(), self.headers.get("Content-Length", "")
        if request is None:
            return
        if not _LENGTH.fullmatch(length):
            self._answer(HTTPStatus.LENGTH_REQUIRED)
            return
        if int(length) > VALUE_LIMIT_BYTES:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            value = self.rfile.read(int(length))
        except TimeoutError:
            self._answer(HTTPStatus.REQUEST_TIMEOUT)
            return
        if len(value) < int(length):
            self._answer(HTTPStatus.BAD_REQUEST)
            return
        self._answer(self._put(*request, value))

    def do_DELETE(self) -> None:
        """A process has found all others of a scope."""
        request = self._admitted()
        if request is not None:
            scope, key, _ = request
            self.server.store.delete(scope, key)
            self._answer(HTTPStatus.OK)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: there are several requests for each pair of processes."""

    def _admitted(self) -> tuple[str, str, Proof] | None:
        """The request's scope, key and proof, if it is believed. If not, it is answered."""
        match = _PATH.fullmatch(self.path)
        if match is None:
            self._answer(HTTPStatus.BAD_REQUEST)
            return None
        admission, scope, key = self.server.admission, match[1], match[2]
        proof = admission.proof(self.headers.get(RENDEZVOUS_TOKEN_HEADER))
        if not admission.admits(scope, proof):
            logger.debug("refused %s %s from %s", self.command, self.path, self.client_address[0])
            self._answer(HTTPStatus.FORBIDDEN)
            return None
        return scope, key, proof

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _value(self, scope: str, key: str) -> bytes | None:
        requests = self.server.requests
        methods = {
            GET_RANK_AND_SIZE: requests.request_place,
            JOIN_SCOPE: requests.wait_at_barrier,
            SYNCED_SCOPE: requests.synced,
        }
        if scope not in methods:
            return self.server.store.get(scope, key)
        slot = _slot_key(key)
        if slot is None:
            return None
        if scope == JOIN_SCOPE:
            says_so = self.headers.get(SHOWS_TOKEN_HEADER) == "1"
            if self.server.admission.horovod_of(slot, shows_token=says_so):
                self.server.store.forget_unproven()
        answer = methods[scope](slot)
        return None if answer is None else answer.encode("ascii")

    def _put(self, scope: str, key: str, proof: Proof, value: bytes) -> HTTPStatus:
        if scope == PUT_WORKER_ADDRESSES:
            # Unlike Horovod, do not store it: GET must not be able to read the key in it.
            self._register(key, proof, value)
            return HTTPStatus.OK
        if scope == "global" and key.isdecimal():
            self.server.requests.initialising(int(key))
        # A stock worker may have waited above, and what it says belongs to the world that it was waiting for.
        try:
            self.server.store.put(scope, key, value, proven=proof is Proof.RIGHT)
        except GlooStoreFullError:
            logger.warning("refused %s/%s from %s: too much is stored", scope, key, self.client_address[0])
            return HTTPStatus.INSUFFICIENT_STORAGE
        return HTTPStatus.OK

    def _register(self, key: str, proof: Proof, value: bytes) -> None:
        slot = _slot_key(key)
        try:
            if slot:
                self.server.requests.register(slot, Registration.parse(value), proven=proof is Proof.RIGHT)
        except HorovodMessageError as error:
            logger.warning("refused a registration for %s from %s: %s", key, self.client_address[0], error)


def _slot_key(key: str) -> SlotKey | None:
    match = _KEY.fullmatch(key)
    return (match[1], int(match[2])) if match else None
