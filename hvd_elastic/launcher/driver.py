"""Carries out what the world decides. One thread owns the world; all others only put events into its queue."""

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import (
    Action,
    AnswerRequest,
    EndProcess,
    FailFormation,
    FinishJob,
    FormWorld,
    LogWarning,
    NotifyCoordinator,
    PingProcess,
    StartProcess,
    Ticket,
    WorldResized,
)
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.launcher.core.world import World
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.protocol.horovod_messages import Registration
from hvd_elastic.launcher.protocol.notifier import Notifier
from hvd_elastic.launcher.protocol.process_pings import ProcessPings
from hvd_elastic.launcher.protocol.rendezvous_server import HeldRequests, RendezvousServer, Reply
from hvd_elastic.launcher.remote.command_runner import CommandRunner, start_failure_code
from hvd_elastic.launcher.remote.worker_output import OutputStream
from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses
from hvd_elastic.launcher.status_report import StatusReport, resize_sentence
from hvd_elastic.mpijob.contract import JoinAnswer
from hvd_elastic.system.atomic_file import WriteFaults
from hvd_elastic.system.backoff import jitter

logger = logging.getLogger(__name__)

HOLD_SECONDS = (1.0, 30.0)
"""How long a host whose process asked to be started again is left out; doubled each time within this range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """How a launch ended. `exit_code` is a value of `contract.Exit`, 128 + a signal, or the script's own code."""

    exit_code: int
    reason: str
    generations: int
    """How many worlds there were."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """How a slot becomes a running command."""

    argv: tuple[str, ...]
    environment: Callable[[Slot], Mapping[str, str]]
    streams: Callable[[int, Slot, Callable[[], str]], tuple[OutputStream, OutputStream]]
    """Called with the process's number, its slot and what tells its present rank; returns stdout and stderr."""


class Driver:
    """Runs the world. It also answers the rendezvous server's requests (`RendezvousRequests`)."""

    def __init__(
        self,
        limits: WorldLimits,
        *,
        cooldown: tuple[int, int] | None,
        runner: CommandRunner,
        workers: WorkerProcesses,
        command: WorkerCommand,
        report: StatusReport,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = World(
            limits,
            Blacklist(cooldown=cooldown, random=jitter),
            Blacklist(cooldown=HOLD_SECONDS, random=jitter),
        )
        self._runner, self._workers, self._command, self._report = runner, workers, command, report
        self._clock = clock
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._notifier = Notifier(self._notified)
        self._pings = ProcessPings(self._pinged)
        self._requests = HeldRequests()
        self._registrations: dict[SlotKey, Registration] = {}
        self._ranks: dict[int, int] = {}
        """The present rank of each process, by number: it labels the process's output."""
        self._listed: tuple[Host, ...] = ()
        self._expected: tuple[ExpectedWorker, ...] = ()
        self._finish: FinishJob | None = None
        self._server: RendezvousServer | None = None
        self._report_is_stale = False
        self._report_faults = WriteFaults("the status file", logger)
        self._connections_are_stale = False

    def run(self, server: RendezvousServer) -> LaunchOutcome:
        """Drive the job to its end. Afterwards the caller ends the processes and closes the server."""
        self._server = server
        started = self._clock()
        self._notifier.start()
        while self._finish is None:
            self._next_event()
            self._carry_out()
        self._notifier.stop()
        self._requests.answer_all(JoinAnswer.AGAIN)
        return LaunchOutcome(
            exit_code=self._finish.exit_code,
            reason=self._finish.reason,
            generations=self._world.processes.generation,
            seconds=self._clock() - started,
        )

    # --- Events from other threads -----------------------------------------------------------------------------------

    def begun_before(self) -> None:
        """An earlier launcher has begun this job."""
        self._events.put(self._world.begun_before)

    def hosts_seen(self, hosts: tuple[Host, ...]) -> None:
        """The source reports these hosts."""
        self._events.put(lambda: self._update_hosts(hosts))

    def workers_expected(self, workers: tuple[ExpectedWorker, ...]) -> None:
        """The source says that these are its hosts, or may soon be."""
        self._events.put(lambda: self._prepare_for(workers))

    def connections_changed(self) -> None:
        """A connection to a host came up or went down, or its address is known. Of thousands few need a look."""
        if not self._connections_are_stale:
            self._connections_are_stale = True
            self._events.put(self._look_at_connections)

    def stop(self, exit_code: int, reason: str) -> None:
        """End the job. A signal handler may call this."""
        self._events.put(lambda: self._world.stop(exit_code, reason))

    def request_place(self, key: SlotKey, reply: Reply) -> None:
        """See RendezvousRequests."""
        self._ask(lambda ticket: self._world.place_requested(key, ticket, self._clock()), reply)

    def wait_at_barrier(self, key: SlotKey, reply: Reply) -> None:
        """See RendezvousRequests."""
        self._ask(lambda ticket: self._world.barrier_reached(key, ticket, self._clock()), reply)

    def initialising(self, rank: int, reply: Reply) -> None:
        """See RendezvousRequests."""
        self._ask(lambda ticket: self._world.initialising(rank, ticket, self._clock()), reply)

    def synced(self, key: SlotKey) -> None:
        """See RendezvousRequests."""
        self._events.put(lambda: self._world.synced(key, self._clock()))

    def ask_for_writer(self, key: SlotKey, reply: Reply) -> None:
        """See RendezvousRequests."""
        self._ask(lambda ticket: self._world.writer_asked(key, ticket), reply)

    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None:
        """See RendezvousRequests."""
        self._events.put(lambda: self._register(key, registration, proven=proven))

    def _ended(self, number: int, code: int, message: str) -> None:
        self._events.put(lambda: self._world.exited(number, code, self._clock(), message))

    def _notified(self, delivered: bool) -> None:
        self._events.put(lambda: self._world.notified(delivered=delivered, now=self._clock()))

    def _pinged(self, number: int, outcome: PingOutcome) -> None:
        self._events.put(lambda: self._world.pinged(number, outcome, self._clock()))

    def _ask(self, question: Callable[[Ticket], None], reply: Reply) -> None:
        ticket = self._requests.hold(reply)
        self._events.put(lambda: question(ticket))

    # --- The thread that owns the world ------------------------------------------------------------------------------

    def _next_event(self) -> None:
        """Wait for an event, and take with it those that have come meanwhile."""
        timeout = max(0.0, min(self._world.actions.wake_at - self._clock(), 3600.0))
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=timeout)
            with self._world.one_decision(self._clock):
                event()
                for _ in range(self._events.qsize()):  # this thread alone takes events out
                    self._events.get()()
        if self._clock() >= self._world.actions.wake_at:  # not every event makes the world decide
            self._world.decide(self._clock())

    def _carry_out(self) -> None:
        """Carry out all actions, then publish the report: workers wait for the actions but not for the report."""
        while actions := self._world.actions.drain():
            for action in actions:
                self._do(action)
                self._report_is_stale |= isinstance(action, FormWorld | WorldResized | LogWarning | FinishJob)
        if self._report_is_stale:
            self._publish()

    def _publish(self) -> None:
        self._report.read_world(self._world, self._clock())
        with self._report_faults.told():
            self._report.write()
            self._report_is_stale = False

    def _update_hosts(self, hosts: tuple[Host, ...]) -> None:
        """Show the world those hosts on which a command could be started at once."""
        self._listed = hosts
        self._runner.expect(hosts, self._expected)
        self._world.hosts_seen(tuple(filter(self._runner.is_open, hosts)), self._clock())
        self._report_is_stale = True

    def _prepare_for(self, workers: tuple[ExpectedWorker, ...]) -> None:
        self._expected = workers
        self._runner.expect(self._listed, workers)

    def _look_at_connections(self) -> None:
        self._connections_are_stale = False  # before the look: a change meanwhile brings another one
        self._update_hosts(self._listed)

    def _register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None:
        """Take the address of a process. It registers once in its life, so what comes later is not from it."""
        if self._world.processes.at(key) is None or (key in self._registrations and not proven):
            logger.warning("refused a registration for %s:%d: it has registered, or does not run", *key)
            return
        self._registrations[key] = registration
        self._world.registered(key, self._clock())

    # --- Actions -----------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def _do(self, action: Action) -> None:
        raise TypeError(f"there is no way to carry out {action}")

    @_do.register
    def _(self, action: AnswerRequest) -> None:
        self._requests.answer(action.ticket, action.text)

    @_do.register
    def _(self, action: FormWorld) -> None:
        assert self._server is not None
        self._server.form(action.slots)
        logger.debug("world %d is forming: %s", action.generation, [slot.key for slot in action.slots])

    @_do.register
    def _(self, action: FailFormation) -> None:
        assert self._server is not None
        if self._world.processes.generation == action.generation:
            self._server.fail_formation()

    @_do.register
    def _(self, action: StartProcess) -> None:
        number, slot = action.number, action.slot
        self._registrations.pop(slot.key, None)
        self._ranks[number] = slot.rank
        self._report.process_started(is_restart=self._world.processes.generation > 1 or not self._world.forming)
        streams = self._command.streams(number, slot, lambda: str(self._ranks.get(number, slot.rank)))
        try:
            environment = self._command.environment(slot)
        except OSError as error:
            self._ended(number, CONNECTION_LOST, f"no network leads to {slot.host.address}: {error}")
            return
        command = self._command.argv
        try:
            self._workers.start(
                number, slot.host, command=command, environment=environment, streams=streams, ended=self._ended
            )
        except OSError as error:
            self._ended(number, start_failure_code(error), f"{command[0]}: {error.strerror}")

    @_do.register
    def _(self, action: EndProcess) -> None:
        logger.debug("process %d is ended: %s", action.number, action.reason)
        self._workers.end(action.number, at_once=action.at_once)

    @_do.register
    def _(self, action: NotifyCoordinator) -> None:
        registration = self._registrations.get(action.key)
        if registration:
            self._notifier.notify(registration)

    @_do.register
    def _(self, action: PingProcess) -> None:
        registration = self._registrations.get(action.key)
        if registration:
            self._pings.ping(action.number, registration)

    @_do.register
    def _(self, action: WorldResized) -> None:
        for process in self._world.processes:
            self._ranks[process.number] = process.slot.rank
        self._report.resized(action, time.time())
        logger.info("%s", resize_sentence(action))

    @_do.register
    def _(self, action: LogWarning) -> None:
        logger.warning("%s", action.text)

    @_do.register
    def _(self, action: FinishJob) -> None:
        self._finish = action
        self._report.finished(action)
