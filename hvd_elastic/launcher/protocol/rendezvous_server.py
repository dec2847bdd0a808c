"""The rendezvous server: Horovod's, with requests that are held, a barrier, and a token against strangers.

One thread serves all connections. A request that waits for the driver's answer is a future, and holds no thread: those
of thousands of workers wait at once, and each blocked thread would take the GIL when it wakes.
"""

import asyncio
import contextlib
import itertools
import logging
import re
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from hvd_elastic.launcher.core.actions import Ticket
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.launcher.protocol.admission import Admission, Proof
from hvd_elastic.launcher.protocol.gloo_store import VALUE_LIMIT_BYTES, GlooStore, GlooStoreFullError
from hvd_elastic.launcher.protocol.horovod_messages import HorovodMessageError, Registration
from hvd_elastic.launcher.protocol.http_requests import (
    HEAD_LIMIT_BYTES,
    RefusedRequestError,
    RequestHead,
    read_body,
    read_head,
    response,
)
from hvd_elastic.launcher.protocol.meeting import Meeting, MeetingError
from hvd_elastic.launcher.protocol.unproven_requests import UnprovenRequests, accepted_at_once
from hvd_elastic.mpijob.contract import (
    ADDRESSES_SCOPE,
    FIGURES_SCOPE,
    JOIN_SCOPE,
    MEETING_SCOPE,
    MEETS_HEADER,
    PLACE_SCOPE,
    RENDEZVOUS_TOKEN_HEADER,
    SHOWS_TOKEN_HEADER,
    SYNCED_SCOPE,
    WATCH_KEY,
    WRITER_SCOPE,
    JoinAnswer,
)
from hvd_elastic.system.background_threads import ErrorLog, start_thread

if TYPE_CHECKING:
    import threading

logger = logging.getLogger(__name__)

GLOO_SCOPE: Final = re.compile(r"global.*|local_.*|cross_.*")
"""Scopes in which Gloo's processes find each other (`gloo_context.h`); those of a process set have a suffix."""

CLIENT_SECONDS: Final = 30.0
"""How long a client may take to send its request, and to take the response. Horovod's server waits 3 s: a worker on a
busy host may need longer from the connection to its request, and is reset then."""

LATE_SECONDS: Final = 5.0
"""How long it may take once more, after that: it may be this side that had no time to look."""

MEETING_SECONDS: Final = 10.0
"""How long a process that has told where it listens is held, before it has to tell again."""

WATCH_SECONDS: Final = 10.0
"""How long a process that asks what becomes of its forming world is held, before it has to ask again."""

JOIN_SECONDS: Final = 30.0
"""How long a process is held at the barrier, before it has to ask again. `hvd-elastic launch` answers earlier."""

BACKLOG: Final = 65_535
"""Connections that may wait to be accepted: as many as the kernel allows, which caps it to net.core.somaxconn (4,096
since Linux 5.4: listen(2)). All workers of a world come at once. Of those that do not fit each waits for TCP to try
again, a second and more."""

_PATH: Final = re.compile(r"/([^/]{1,512})/([^/]{1,512})")
_KEY: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,4})")

_Read = TypeVar("_Read")

Reply = Callable[[str], None]
"""Answers a held request. Any thread may call it, once."""


class RendezvousRequests(Protocol):
    """What the server asks for the workers. It is called in the server's thread, and must not block."""

    def request_place(self, key: SlotKey, reply: Reply) -> None: ...
    def wait_at_barrier(self, key: SlotKey, reply: Reply) -> None: ...
    def initialising(self, rank: int, reply: Reply) -> None: ...
    def synced(self, key: SlotKey) -> None: ...
    def ask_for_writer(self, key: SlotKey, reply: Reply) -> None: ...
    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None: ...


class ReportTaker(Protocol):
    """Takes what the sidecar is to know (`contract.FIGURES_SCOPE`), in the server's thread."""

    def take(self, key: str, value: bytes) -> None: ...
    def registered(self) -> None: ...


class HeldRequests:
    """Requests that wait for the driver's answer, by ticket. Any thread may call it."""

    def __init__(self) -> None:
        self._replies: dict[Ticket, Reply] = {}
        self._numbers = itertools.count(1)

    def hold(self, reply: Reply) -> Ticket:
        """Keep a request until `answer`."""
        ticket = next(self._numbers)
        self._replies[ticket] = reply
        return ticket

    def answer(self, ticket: Ticket, text: str) -> None:
        """Answer a request; does nothing if that was done already."""
        reply = self._replies.pop(ticket, None)
        if reply:
            reply(text)

    def answer_all(self, text: str) -> None:
        """Give all open requests the same answer."""
        for ticket in list(self._replies):
            self.answer(ticket, text)


class RendezvousServer:
    """The server that Horovod's C++ side and the workers ask, able to serve many of them at once.

    Horovod's own listens on all interfaces and with a backlog of 5: of 64 workers that come together most wait a second
    until TCP tries again. It answers HEAD with what it knows of the files in its working directory.

    Its methods only tell its thread what to do, in the order of the calls.
    """

    def __init__(
        self, address: str, requests: RendezvousRequests, *, token: str, reports: ReportTaker | None = None
    ) -> None:
        self._requests, self._reports = requests, reports
        self._admission = Admission(token)
        self._unproven = UnprovenRequests()
        self._store = GlooStore()
        self._broken = asyncio.Event()
        """A member of the forming world has died."""
        self._meeting = Meeting(0)
        self._has_met = asyncio.Event()
        """Those who wait in the meeting may look again."""
        self._socket = _listener(address)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._stopped = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._errors = ErrorLog(logger)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        self._thread = start_thread("rendezvous", self._run, log=logger)

    def form(self, slots: tuple[Slot, ...]) -> None:
        """Forget what the last world's processes left and expect those of the new one."""
        self._tell(self._form, slots)

    def fail_formation(self) -> None:
        """A member of the forming world has died: let the others give up."""
        self._tell(self._break)

    def stop(self) -> None:
        """Stop serving, once all replies that were given are sent. Requests that are still held are reset."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
        self._runner.close()
        self._socket.close()

    def _tell(self, act: Callable[..., None], *arguments: object) -> None:
        """Have the server's thread do it. A server that has stopped does nothing: nobody waits for it."""
        with contextlib.suppress(RuntimeError):  # asyncio's for a loop that is closed
            self._loop.call_soon_threadsafe(act, *arguments)

    # --- The server's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._runner.run(self._serve())

    async def _serve(self) -> None:
        # asyncio accepts up to `backlog` connections in a row, and makes that the length of the kernel's queue.
        server = await asyncio.start_server(
            self._connected, sock=self._socket, backlog=accepted_at_once(), limit=HEAD_LIMIT_BYTES
        )
        self._socket.listen(BACKLOG)
        await self._stopped.wait()
        server.close()

    def _form(self, slots: tuple[Slot, ...]) -> None:
        self._admission.form(slot.key for slot in slots)
        self._unproven.form(len(slots))
        sizes = {}
        for slot in slots:
            sizes["global"] = slot.size
            sizes[f"local_{slot.host.alias}"] = slot.local_size
            sizes[f"cross_{slot.local_rank}"] = slot.cross_size
        self._store.form(sizes, len(slots))
        self._broken = asyncio.Event()
        self._has_met.set()
        self._has_met, self._meeting = asyncio.Event(), Meeting(self._meeting.number + 1, slots)

    def _break(self) -> None:
        self._broken.set()
        self._has_met.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request. A worker that hangs up has died, and its end is reported elsewhere."""
        client = str(writer.get_extra_info("peername", ("a lost client",))[0]).removeprefix("::ffff:")
        self._unproven.begin()
        try:
            status, body = await self._answer(reader, client)
            writer.write(response(status, body))
            writer.close()
            async with asyncio.timeout(CLIENT_SECONDS):
                await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as error:
            logger.debug("request of %s failed: %r", client, error)
        except asyncio.CancelledError:
            logger.debug("request of %s was still held when the server stopped, or gave way to others", client)
        except Exception as error:  # noqa: BLE001 - one request fails, and the others are served
            self._errors.say(f"a request of {client} failed", error)
        finally:
            self._unproven.end()
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, client: str) -> tuple[HTTPStatus, bytes]:
        deadline = self._loop.time() + CLIENT_SECONDS
        try:
            head = await _in_time(lambda: read_head(reader), deadline)
            scope, key, proof = self._admitted(head, client)
            if proof is Proof.RIGHT:
                self._unproven.end()
            value, is_put = b"", head.method == "PUT"
            if is_put:
                value = await _in_time(lambda: read_body(reader, head, limit_bytes=VALUE_LIMIT_BYTES), deadline)
        except RefusedRequestError as error:
            return error.status, b""
        except TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT, b""
        if is_put:
            return await self._put(scope, key, proof, value, client)
        if head.method == "DELETE":  # a process has found all others of a scope
            self._store.delete(scope, key)
            return HTTPStatus.OK, b""
        if (scope, key) == ("global", WATCH_KEY):
            await self._watched()
        if self._broken.is_set() and GLOO_SCOPE.fullmatch(scope):
            # Gloo would look for a process that has died while the world was forming until the Gloo time-out. Any
            # status but 200 and 404 makes it give up after three tries (`http_store.cc`).
            return HTTPStatus.GONE, b""
        found = await self._value(scope, key, head)
        return (HTTPStatus.NOT_FOUND, b"") if found is None else (HTTPStatus.OK, found)

    def _admitted(self, head: RequestHead, client: str) -> tuple[str, str, Proof]:
        """The request's scope, key and proof. Raises RefusedRequestError if it is not believed."""
        match = _PATH.fullmatch(head.path)
        if match is None:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST)
        scope, key = match[1], match[2]
        proof = self._admission.proof(head.headers.get(RENDEZVOUS_TOKEN_HEADER.lower()))
        if not self._admission.admits(scope, proof):
            logger.debug("refused %s %s from %s", head.method, head.path, client)
            raise RefusedRequestError(HTTPStatus.FORBIDDEN)
        return scope, key, proof

    async def _value(self, scope: str, key: str, head: RequestHead) -> bytes | None:
        if scope not in {PLACE_SCOPE, JOIN_SCOPE, SYNCED_SCOPE, WRITER_SCOPE}:
            return self._store.get(scope, key)
        slot = _slot_key(key)
        if slot is None:
            return None
        if scope == SYNCED_SCOPE:
            self._requests.synced(slot)
            return b""
        if scope == JOIN_SCOPE:
            return await self._join(slot, head)
        ask = self._requests.request_place if scope == PLACE_SCOPE else self._requests.ask_for_writer
        return await self._asked(lambda reply: ask(slot, reply))

    async def _join(self, slot: SlotKey, head: RequestHead) -> bytes:
        """Hold a process at the barrier, and note what it says of its Horovod."""
        if self._admission.horovod_of(slot, shows_token=head.says(SHOWS_TOKEN_HEADER)):
            self._store.forget_unproven()
        if head.says(MEETS_HEADER):
            self._meeting.note_able(slot)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOIN_SECONDS):
                return await self._asked(lambda reply: self._requests.wait_at_barrier(slot, reply))
        return JoinAnswer.WAIT.encode()

    async def _watched(self) -> None:
        """Hold who forms a world until a member of it has died, or for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS):
                await self._broken.wait()

    async def _put(self, scope: str, key: str, proof: Proof, value: bytes, client: str) -> tuple[HTTPStatus, bytes]:
        """Store a value, or take a registration, or what a process tells in a meeting."""
        if scope == MEETING_SCOPE:
            return await self._meet(key, value, client)
        return await self._stored(scope, key, proof, value, client), b""

    async def _meet(self, number: str, value: bytes, client: str) -> tuple[HTTPStatus, bytes]:
        meeting, has_met = self._meeting, self._has_met
        if self._broken.is_set() or number != str(meeting.number):
            return HTTPStatus.GONE, b""
        try:
            meeting.take(value)
        except MeetingError as error:
            logger.warning("refused what %s has sent to meet others: %s", client, error)
            return HTTPStatus.BAD_REQUEST, b""
        if meeting.is_complete:
            has_met.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MEETING_SECONDS):
                await has_met.wait()
        if self._broken.is_set() or meeting is not self._meeting:
            return HTTPStatus.GONE, b""
        return HTTPStatus.OK, meeting.answer()

    async def _stored(self, scope: str, key: str, proof: Proof, value: bytes, client: str) -> HTTPStatus:
        if scope == ADDRESSES_SCOPE:
            # Unlike Horovod, do not store it: GET must not be able to read the key in it.
            self._register(key, proof, value, client)
            return HTTPStatus.OK
        if scope == FIGURES_SCOPE:
            if self._reports is not None:
                self._reports.take(key, value)
            return HTTPStatus.OK
        if scope == "global" and key.isdecimal():
            await self._asked(lambda reply: self._requests.initialising(int(key), reply))
        # A stock worker may have waited above, and what it says belongs to the world that it was waiting for.
        try:
            self._store.put(scope, key, value, proven=proof is Proof.RIGHT)
        except GlooStoreFullError:
            logger.warning("refused %s/%s from %s: too much is stored", scope, key, client)
            return HTTPStatus.INSUFFICIENT_STORAGE
        return HTTPStatus.OK

    def _register(self, key: str, proof: Proof, value: bytes, client: str) -> None:
        slot = _slot_key(key)
        try:
            if slot:
                self._requests.register(slot, Registration.parse(value), proven=proof is Proof.RIGHT)
                if self._reports is not None:
                    self._reports.registered()
        except HorovodMessageError as error:
            logger.warning("refused a registration for %s from %s: %s", key, client, error)

    async def _asked(self, question: Callable[[Reply], None]) -> bytes:
        """Ask, and wait for the reply."""
        answer: asyncio.Future[bytes] = self._loop.create_future()

        def take(text: str) -> None:
            if text == JoinAnswer.GO:  # here, where no later world can have begun to form
                text = self._meeting.go()
            if not answer.done():  # cancelled when the server stops
                answer.set_result(text.encode("ascii"))

        def reply(text: str) -> None:
            self._tell(take, text)

        question(reply)
        return await answer


def _listener(address: str) -> socket.socket:
    """Bind to the address; where it is empty to all, by IPv6 and IPv4 if the kernel has both. Raises OSError."""
    both = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=BACKLOG, dualstack_ipv6=both)


async def _in_time(read: Callable[[], Awaitable[_Read]], deadline: float) -> _Read:
    """Read until the deadline, by the loop's clock. What had arrived by then is read, however late this side is.

    A launcher whose thousands of workers come together, or that gets little of its CPU, may be.

    Raises TimeoutError.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            return await read()
    async with asyncio.timeout(LATE_SECONDS):
        return await read()


def _slot_key(key: str) -> SlotKey | None:
    match = _KEY.fullmatch(key)
    return (match[1], int(match[2])) if match else None
