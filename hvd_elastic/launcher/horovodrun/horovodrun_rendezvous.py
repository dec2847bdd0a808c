"""The rendezvous server of `horovodrun`: ours, over Horovod's own driver.

Horovod's serves each request in a thread, over a connection of its own, and a world of N processes asks some 5 N(N-1)
times. Ours has a barrier, a meeting and a token besides, as under `hvd-elastic launch`. Who is in a world, and when the
next one forms, Horovod's driver decides.
"""

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.launcher.protocol.horovod_messages import NoticeStamps, Registration
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer, Reply
from hvd_elastic.launcher.script_reports import ScriptReports
from hvd_elastic.mpijob.contract import JoinAnswer, WriterAnswer
from hvd_elastic.system.background_threads import start_thread

if TYPE_CHECKING:
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.elastic.driver import ElasticDriver

logger = logging.getLogger(__name__)

_ALL_ADDRESSES: Final = ""
"""As Horovod's own: it finds out later by which one workers reach it."""


class WorldGate:
    """Lets the members of a world pass once all of them have come, or none of them. Any thread may call it.

    It also knows which of them are left.

    A member of another build, or with Horovod's own worker side, does not come here. Once one has gone past, there is
    nothing to wait for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[SlotKey, bool] = {}
        """By rank; whether each is left, and has not ended."""
        self._waiting: dict[SlotKey, Reply] = {}
        self._answer: JoinAnswer | None = None
        """What all members of this world get; None: not all are there."""

    def form(self, members: Iterable[SlotKey]) -> None:
        """Expect the members of a new world, given by rank. Those of the last one ask for a place again."""
        with self._lock:
            self._decide(JoinAnswer.AGAIN)
            self._members, self._answer = dict.fromkeys(members, True), None

    def arrive(self, key: SlotKey, reply: Reply) -> None:
        """A process has come to the barrier."""
        with self._lock:
            if key not in self._members:
                reply(JoinAnswer.AGAIN)
            elif self._answer is not None:
                reply(self._answer)
            else:
                self._waiting[key] = reply
                if len(self._waiting) == len(self._members):
                    self._decide(JoinAnswer.GO)

    def pass_by(self) -> None:
        """A process looks for the others without having come here."""
        with self._lock:
            if self._answer is None:
                self._decide(JoinAnswer.GO)

    def lose(self, key: SlotKey) -> bool:
        """A process has ended. Returns whether it was a member of this world, which cannot form any more then."""
        with self._lock:
            if key not in self._members:
                return False
            self._members[key] = False
            self._decide(JoinAnswer.AGAIN)
            return True

    def is_first(self, key: SlotKey) -> bool:
        """Whether, of the members of this world that are left, this one has the lowest rank."""
        with self._lock:
            return next((member for member, is_left in self._members.items() if is_left), None) == key

    def _decide(self, answer: JoinAnswer) -> None:
        self._answer = answer
        for reply in self._waiting.values():
            reply(answer)
        self._waiting.clear()


class WorkerClient:
    """Tells a worker of changed hosts, in place of Horovod's `WorkerNotificationClient`."""

    def __init__(self, registration: Registration, stamps: NoticeStamps) -> None:
        """`stamps`: those of all workers."""
        self._registration, self._stamps = registration, stamps

    def notify_hosts_updated(self, _timestamp: int, _update: object) -> None:
        """Tell it. Raises HorovodMessageError."""
        self._registration.notify(self._stamps.next_stamp())


class HorovodrunRendezvous:
    """In place of `horovod.runner.http.http_server.RendezvousServer`, for an elastic driver."""

    def __init__(self, token: str, reports: ScriptReports | None) -> None:
        """`token`: what a process of this job shows. `reports`: takes what the sidecar is to know."""
        self._gate, self._stamps = WorldGate(), NoticeStamps()
        self._server = RendezvousServer(_ALL_ADDRESSES, self, token=token, reports=reports)
        self._driver: ElasticDriver | None = None

    # --- What Horovod's driver asks for ------------------------------------------------------------------------------

    def start(self, driver: "ElasticDriver") -> int:
        """Serve the workers of this driver; return the port."""
        self._driver, ended = driver, driver._handle_worker_exit

        def handle_worker_exit(slot: "SlotInfo", *rest: Any) -> None:
            if self._gate.lose((slot.hostname, slot.local_rank)):
                self._server.fail_formation()
            ended(slot, *rest)

        driver._handle_worker_exit = handle_worker_exit
        self._server.start()
        return self._server.port

    def init(self, plan: "Iterable[SlotInfo]") -> None:
        """A new world forms. What its processes ask comes after this, or they ask again."""
        slots = tuple(map(_slot, plan))
        self._server.form(slots)
        self._gate.form(slot.key for slot in slots)

    def stop(self) -> None:
        """Serve nobody any more. Horovod's driver says so twice at the end of a job."""
        driver, self._driver = self._driver, None
        if driver is not None:
            self._server.stop()

    # --- What the server asks for the workers ------------------------------------------------------------------------

    def request_place(self, key: SlotKey, reply: Reply) -> None:
        """Ask the driver, which waits in this call until all processes of the world have come or ended."""

        def ask() -> None:
            driver, answer = self._driver, str(JoinAnswer.AGAIN)
            try:
                if driver is not None:
                    driver.record_ready(*key)
                    answer = driver.get_slot_info(*key).to_response_string()
            except RuntimeError as error:  # a barrier that was reset: the process itself has ended meanwhile
                logger.debug("%s:%d gets no place: %s", *key, error)
            reply(answer)

        start_thread(f"place of {key[0]}:{key[1]}", ask, log=logger)

    def wait_at_barrier(self, key: SlotKey, reply: Reply) -> None:
        self._gate.arrive(key, reply)

    def initialising(self, _rank: int, reply: Reply) -> None:
        self._gate.pass_by()
        reply("")

    def synced(self, key: SlotKey) -> None: ...

    def ask_for_writer(self, key: SlotKey, reply: Reply) -> None:
        reply(WriterAnswer.YES if self._gate.is_first(key) else WriterAnswer.NO)

    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None:
        if self._driver is not None:
            self._driver._worker_clients[key] = WorkerClient(registration, self._stamps)


def _slot(info: "SlotInfo") -> Slot:
    return Slot(
        host=Host(alias=info.hostname, address="", slots=info.local_size),
        rank=info.rank,
        size=info.size,
        local_rank=info.local_rank,
        local_size=info.local_size,
        cross_rank=info.cross_rank,
        cross_size=info.cross_size,
    )
