"""PID 1 of a worker pod: sshd, one standby a slot, readiness, adoption, and the way out."""

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from hvd_elastic.mpijob.contract import READY_PORT, Exit, HvdElasticError, Standby, WorkerState, drain_seconds
from hvd_elastic.worker import child_processes, drain, heartbeat_answer
from hvd_elastic.worker.adoption.adopt_socket import AdoptSocket, Client
from hvd_elastic.worker.event_loop import EventLoop
from hvd_elastic.worker.pod_settings import Settings
from hvd_elastic.worker.ready_port import ReadyPort
from hvd_elastic.worker.slot_phase import SlotPhase
from hvd_elastic.worker.sshd import Sshd
from hvd_elastic.worker.standby.program import NoProgram, Program, read
from hvd_elastic.worker.worker_slot import SlotJob, WorkerSlot

log = logging.getLogger(__name__)


class RunDirError(HvdElasticError):
    """RUN_DIR cannot be used."""

    exit_code = Exit.BAD_INPUT


class Generation:
    """Counts the sets of processes that this pod was usable with, over restarts of its container too: the UID stays."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "generation"
        try:
            self.number = int(self._path.read_text())
        except (OSError, ValueError):
            self.number = 0

    def begin(self) -> None:
        """Count one more."""
        self.number += 1
        drain.put(self._path, str(self.number))


class EntryPoint:
    """A worker: usable while every slot counts and all belong to one generation.

    **Generation.** A host is known to the launcher as `UID-GENERATION`. A generation ends when a process of any slot
    ends that no newer command replaces: the launcher has lost that host, all slots of it. The port closes; slots whose
    process ended get a fresh standby at once; those that still train are *stale*: they belong to the host that is gone,
    and leave when the launcher tells them so. When none is stale and every slot counts again, the next generation
    begins and the port opens. A process that a newer command replaced (a launcher that was restarted) begins no
    generation: the newer command came to this very host.
    """

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        sshd: Sequence[str] | None,
        ready_port: int = READY_PORT,
    ) -> None:
        self._settings = settings
        self._run_dir = settings.run_dir
        self._reactor = EventLoop()
        job = SlotJob(
            environment=dict(environment),
            standby=settings.standby,
            slots=settings.slots,
            program=_program(settings, command, environment),
        )
        self._slots = [self._slot(job, number) for number in range(settings.slots)]
        self._ready = ReadyPort(
            self._reactor,
            address=settings.ready_address,
            port=ready_port,
            answer=self._answer,
            on_request=self._on_request,
        )
        self._sshd = self._keeper(sshd, environment) if sshd is not None else None
        self._adopt: AdoptSocket | None = None
        self._generation = Generation(settings.run_dir)
        self._stale: set[WorkerSlot] = set()
        self._usable = False
        self._leaving = False
        self._code = int(Exit.OK)

    def run(self) -> int:
        """Serve until a signal ends it; returns the exit code. No process is left behind."""
        _prepare(self._run_dir)
        child_processes.adopt_orphans()
        self._catch_signals()
        try:
            self._adopt = AdoptSocket(self._reactor, run_dir=self._run_dir, on_client=self._on_client)
        except OSError as error:
            raise RunDirError(f"{self._run_dir}: {error.strerror}") from error
        if self._sshd is not None:
            self._sshd.start()
        for slot in self._slots:
            slot.start()
        self._reactor.run()
        self._ready.close()
        self._adopt.close()
        child_processes.kill_descendants()
        return self._code

    def _slot(self, job: SlotJob, number: int) -> WorkerSlot:
        slot = WorkerSlot(self._reactor, job, number, on_change=self._update, on_lost=lambda: self._lost(slot))
        return slot

    def _keeper(self, command: Sequence[str], environment: Mapping[str, str]) -> Sshd:
        return Sshd(self._reactor, command=command, environment=environment, on_give_up=self._without_sshd)

    def _catch_signals(self) -> None:
        self._reactor.on_signal(signal.SIGTERM, self._leave)
        self._reactor.on_signal(signal.SIGINT, self._leave)
        self._reactor.on_signal(signal.SIGHUP, self._reactor.stop)
        self._reactor.on_signal(signal.SIGCHLD, self._reap)

    def _reap(self) -> None:
        for pid, code in child_processes.reap(lambda pid: self._owner(pid) is not None):
            slot = self._owner(pid)
            if slot is not None:
                slot.ended(code, retired=self._leaving)
            elif self._sshd is not None and pid == self._sshd.pid:
                self._sshd.ended(code)
        self._end_if_left()

    def _owner(self, pid: int) -> WorkerSlot | None:
        return next((slot for slot in self._slots if slot.pid == pid), None)

    def _lost(self, slot: WorkerSlot) -> None:
        self._stale.discard(slot)
        if slot.phase is not SlotPhase.DONE:
            self._stale.update(
                other for other in self._slots if other is not slot and other.phase is SlotPhase.TRAINING
            )
        if not self._trains:
            drain.clean(self._run_dir)
        self._update()

    def _update(self) -> None:
        """Open or close the port as the slots say."""
        usable = self._trains if self._leaving else all(slot.counts for slot in self._slots) and not self._stale
        if usable == self._usable:
            return
        self._usable = usable
        if not usable:
            self._ready.close()
            return
        if not self._leaving:
            self._generation.begin()
        log.info("ready, generation %d", self._generation.number)
        self._ready.open()

    @property
    def _trains(self) -> bool:
        return any(slot.trains for slot in self._slots)

    def _answer(self) -> bytes:
        state = WorkerState.TRAINING if self._trains else WorkerState.WAITING
        state = WorkerState.LEAVING if self._leaving else state
        return heartbeat_answer.line(self._generation.number, state, heartbeat_answer.read_heartbeat(self._run_dir))

    def _on_request(self, line: str) -> None:
        verb, _, reason = line.partition(" ")
        if verb == "checkpoint" and self._trains:
            log.info("a checkpoint is asked for: %s", reason)
            drain.request_checkpoint(self._run_dir, reason)

    def _on_client(self, client: Client) -> None:
        if client.local_rank >= len(self._slots):
            client.say(f"local rank {client.local_rank}, but this worker has {len(self._slots)} slots")
            client.finish(Exit.BAD_INPUT)
        elif self._leaving:
            client.say("this worker is about to end")
            client.finish(Exit.HOST_CHANGE)
        else:
            if not self._trains:
                drain.clean(self._run_dir)
            self._slots[client.local_rank].adopt(client)

    def _leave(self) -> None:
        if self._leaving:
            log.warning("asked twice: ending at once")
            self._reactor.stop()
            return
        self._leaving = True
        if self._trains:
            drain.announce(self._run_dir)
        for slot in self._slots:
            slot.retire()
        if not self._trains:
            self._reactor.stop()
            return
        patience = drain_seconds(self._settings.grace_seconds)
        log.info("leaving: the training process has %g s", patience)
        self._reactor.after(patience, self._out_of_patience)

    def _out_of_patience(self) -> None:
        log.warning("the grace is over: the training process is killed")
        self._reactor.stop()

    def _end_if_left(self) -> None:
        if self._leaving and not self._trains:
            self._reactor.after(drain.LINGER_SECONDS, self._reactor.stop)

    def _without_sshd(self) -> None:
        if not self._trains:
            log.error("sshd does not stay up: no launcher could ever reach this worker")
            self._code = int(Exit.ERROR)
            self._reactor.stop()


def _program(settings: Settings, command: Sequence[str], environment: Mapping[str, str]) -> Program | None:
    program = read(command, environment)
    if isinstance(program, NoProgram):
        if settings.standby is not Standby.OFF:
            log.warning("no standby: %s", program.reason)
        return None
    return program


def _prepare(run_dir: Path) -> None:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        drain.clean(run_dir)
    except OSError as error:
        raise RunDirError(f"{run_dir}: {error.strerror}") from error
    if not os.access(run_dir, os.W_OK | os.X_OK):
        raise RunDirError(f"{run_dir}: this user cannot write there")
