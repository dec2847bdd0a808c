"""Carries out what the world decides. One thread owns the world; all others only put events into its queue."""

import itertools
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod

from hvd_elastic.launcher.core.actions import (
    Action,
    AnswerPlace,
    Break,
    End,
    Finish,
    Form,
    Notify,
    Resized,
    Start,
    Ticket,
    Warn,
)
from hvd_elastic.launcher.core.blacklist import Blacklist
from hvd_elastic.launcher.core.hosts import Host
from hvd_elastic.launcher.core.process import WorldLimits
from hvd_elastic.launcher.core.slot_placement import Key, Slot
from hvd_elastic.launcher.core.world import World
from hvd_elastic.launcher.protocol.horovod_messages import HorovodMessageError, Registration
from hvd_elastic.launcher.protocol.rendezvous_server import Server
from hvd_elastic.launcher.remote.worker_output import Stream
from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses
from hvd_elastic.launcher.remote.worker_shell import Shell
from hvd_elastic.launcher.status_report import HostStatus, StatusReport, sentence
from hvd_elastic.mpijob.contract import JoinAnswer

logger = logging.getLogger(__name__)

HOLD_SECONDS = (1.0, 30.0)
"""Before a host whose process asked to be started again is used again; doubled each time within this range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """How a launch ended. `exit_code` is a value of `contract.Exit`, 128 + a signal, or the script's own code."""

    exit_code: int
    reason: str
    generations: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How a slot becomes a running command."""

    command: tuple[str, ...]
    environment: Callable[[Slot], Mapping[str, str]]
    streams: Callable[[int, Slot, Callable[[], str]], tuple[Stream, Stream]]


class Driver:
    """See the module. It is the rendezvous server's desk, too."""

    def __init__(
        self,
        rules: WorldLimits,
        *,
        cooldown: tuple[int, int] | None,
        shell: Shell,
        workers: WorkerProcesses,
        launching: Launching,
        report: StatusReport,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = World(
            rules,
            Blacklist(cooldown=cooldown, random=random.random),
            Blacklist(cooldown=HOLD_SECONDS, random=random.random),
        )
        self._shell, self._workers, self._launching, self._report = shell, workers, launching, report
        self._clock = clock
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._notices: queue.SimpleQueue[Registration | None] = queue.SimpleQueue()
        self._tickets: dict[Ticket, queue.SimpleQueue[str]] = {}
        self._ticket_numbers = itertools.count(1)
        self._registrations: dict[Key, Registration] = {}
        self._ranks: dict[int, int] = {}
        self._listed: tuple[Host, ...] = ()
        self._outcome: LaunchOutcome | None = None
        self._stamp = 0
        self._server: Server | None = None
        self._is_stale = False
        """Whether the report lags behind the world."""

    def run(self, server: Server) -> LaunchOutcome:
        """Drive the job to its end. The processes are still to be ended then, and the server to be closed."""
        self._server = server
        started = self._clock()
        notifier = threading.Thread(target=self._send_notices, name="notices", daemon=True)
        notifier.start()
        while self._outcome is None:
            self._next_event()
            self._carry_out()
        self._notices.put(None)
        for ticket in list(self._tickets):
            self._tickets.pop(ticket).put(JoinAnswer.AGAIN)
        return LaunchOutcome(
            exit_code=self._outcome.exit_code,
            reason=self._outcome.reason,
            generations=self._world.roster.generation,
            seconds=self._clock() - started,
        )

    # --- What others tell it, from their threads ---------------------------------------------------------------------

    def hosts_seen(self, hosts: tuple[Host, ...]) -> None:
        """The source has these hosts."""
        self._events.put(lambda: self._list(hosts))

    def shell_changed(self) -> None:
        """A connection came up or went down."""
        self._events.put(lambda: self._list(self._listed))

    def stop(self, exit_code: int, reason: str) -> None:
        """End the job. May be called by a signal handler."""
        self._events.put(lambda: self._world.stop(exit_code, reason))

    def place_of(self, key: Key) -> str | None:
        """See rendezvous.Desk."""
        return self._ask(lambda ticket: self._world.asked(key, ticket, self._clock()))

    def join(self, key: Key) -> str | None:
        """See rendezvous.Desk."""
        return self._ask(lambda ticket: self._world.joining(key, ticket, self._clock()))

    def synced(self, key: Key) -> str:
        """See rendezvous.Desk."""
        self._events.put(lambda: self._world.synced(key, self._clock()))
        return ""

    def register(self, key: Key, registration: Registration) -> None:
        """See rendezvous.Desk."""
        self._events.put(lambda: self._register(key, registration))

    def initialising(self, rank: int) -> None:
        """See rendezvous.Desk."""
        self._events.put(lambda: self._world.initialising(rank, self._clock()))

    def _ended(self, number: int, code: int, message: str) -> None:
        self._events.put(lambda: self._world.exited(number, code, self._clock(), message))

    # --- Its own thread ----------------------------------------------------------------------------------------------

    def _next_event(self) -> None:
        timeout = max(0.0, min(self._world.agenda.wake_at - self._clock(), 3600.0))
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            self._world.decide(self._clock())
        else:
            event()

    def _carry_out(self) -> None:
        """What workers wait for comes first, the report after it."""
        while actions := self._world.agenda.take():
            for action in actions:
                self._do(action)
                self._is_stale |= isinstance(action, Form | Resized | Warn | Finish)
        if self._is_stale:
            self._publish()

    def _list(self, hosts: tuple[Host, ...]) -> None:
        """Of the hosts that are listed the world sees those that a command could be started on at once."""
        if hosts != self._listed:
            self._listed = hosts
            self._shell.expect(hosts)
        self._world.hosts_seen(tuple(filter(self._shell.is_open, hosts)), self._clock())
        self._is_stale = True

    def _ask(self, question: Callable[[Ticket], None]) -> str | None:
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        ticket = next(self._ticket_numbers)
        self._tickets[ticket] = answer
        self._events.put(lambda: question(ticket))
        return answer.get()

    def _register(self, key: Key, registration: Registration) -> None:
        self._registrations[key] = registration
        self._world.registered(key, self._clock())

    @singledispatchmethod
    def _do(self, action: Action) -> None:
        raise TypeError(f"nobody carries out {action}")

    @_do.register
    def _(self, action: AnswerPlace) -> None:
        answer = self._tickets.pop(action.ticket, None)
        if answer:
            answer.put(action.text)

    @_do.register
    def _(self, action: Form) -> None:
        assert self._server is not None
        self._server.form(action.slots)
        logger.debug("world %d is forming: %s", action.generation, [slot.key for slot in action.slots])

    @_do.register
    def _(self, action: Break) -> None:
        assert self._server is not None
        self._server.broken = self._world.roster.generation == action.generation

    @_do.register
    def _(self, action: Start) -> None:
        number, slot = action.number, action.slot
        self._registrations.pop(slot.key, None)
        self._ranks[number] = slot.rank
        self._report.status.started_processes += 1
        self._report.status.restarted_processes += self._world.roster.generation > 1 or not self._world.forming
        streams = self._launching.streams(number, slot, lambda: str(self._ranks.get(number, slot.rank)))
        try:
            self._workers.start(
                number,
                slot.host,
                command=self._launching.command,
                environment=self._launching.environment(slot),
                streams=streams,
                ended=self._ended,
            )
        except OSError as error:
            logger.warning("cannot start a process on %s: %s", slot.host.label, error)
            self._ended(number, 127, str(error))

    @_do.register
    def _(self, action: End) -> None:
        logger.debug("process %d is ended: %s", action.number, action.why)
        self._workers.end(action.number, at_once=action.at_once)

    @_do.register
    def _(self, action: Notify) -> None:
        self._notices.put(self._registrations.get(action.key))

    @_do.register
    def _(self, action: Resized) -> None:
        for process in self._world.roster:
            self._ranks[process.number] = process.slot.rank
        self._report.resized(action, time.time())
        logger.info("%s", sentence(action))

    @_do.register
    def _(self, action: Warn) -> None:
        logger.warning("%s", action.text)

    @_do.register
    def _(self, action: Finish) -> None:
        self._outcome = LaunchOutcome(exit_code=action.exit_code, reason=action.reason, generations=0, seconds=0.0)

    # --- The notifier's thread ---------------------------------------------------------------------------------------

    def _send_notices(self) -> None:
        while True:
            registration = self._notices.get()
            while not self._notices.empty():
                registration = self._notices.get()
            if registration is None:
                if self._outcome is not None:
                    return
                continue
            delivered = self._notify(registration)
            self._events.put(lambda ok=delivered: self._world.notified(delivered=ok, now=self._clock()))  # type: ignore[misc]

    def _notify(self, registration: Registration) -> bool:
        self._stamp = max(self._stamp + 1, time.time_ns())
        try:
            registration.notify(self._stamp)
        except HorovodMessageError as error:
            logger.debug("%s", error)
            return False
        return True

    # --- The report --------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        self._is_stale = False
        world, status, now = self._world, self._report.status, self._clock()
        status.state = "ended" if world.finished else "forming" if world.forming else "running"
        if not world.roster.slots and not world.finished:
            status.state = "starting"
        status.world_size, status.wanted_size = len(world.roster.slots), world.wanted_size(now)
        status.generation, status.resets = world.roster.generation, world.resets
        status.blacklisted = world.blacklisted(now)
        status.hosts = _host_statuses(world.roster.slots)
        if self._outcome:
            status.exit_code, status.reason = self._outcome.exit_code, self._outcome.reason
        try:
            self._report.write()
        except OSError as error:
            logger.warning("the status file cannot be written: %s", error)


def _host_statuses(slots: tuple[Slot, ...]) -> tuple[HostStatus, ...]:
    ranks: dict[Host, list[int]] = {}
    for slot in slots:
        ranks.setdefault(slot.host, []).append(slot.rank)
    return tuple(
        HostStatus(alias=host.alias, pod=host.pod, address=host.address, ranks=tuple(numbers))
        for host, numbers in ranks.items()
    )
