"""PID 1 of a worker pod: sshd, one standby per slot, readiness, adoption, and the pod's end."""

import logging
import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import (
    GENERATION_FILE,
    READY_PORT,
    Exit,
    HvdElasticError,
    Standby,
    WorkerState,
    drain_seconds,
)
from hvd_elastic.system import child_processes, job_key
from hvd_elastic.system.plain_words import count_words
from hvd_elastic.worker import answers, drain
from hvd_elastic.worker.adoption.adopt_socket import AdoptClient, AdoptSocket
from hvd_elastic.worker.early_exit import reported_exit, take_mark
from hvd_elastic.worker.event_loop import EventLoop
from hvd_elastic.worker.folder_copy import FolderCopy
from hvd_elastic.worker.pod_settings import PodSettings
from hvd_elastic.worker.process_exits import KILLED, OomKills, ProcessExits
from hvd_elastic.worker.ready_port import ReadyPort
from hvd_elastic.worker.slot_phase import SlotPhase
from hvd_elastic.worker.sshd import Sshd
from hvd_elastic.worker.standby.program import NoProgram, Program, read_program
from hvd_elastic.worker.stopped_processes import LOOK_SECONDS, STOPPED_SECONDS, StoppedProcesses, is_stopped
from hvd_elastic.worker.worker_slot import SlotJob, WorkerSlot

log = logging.getLogger(__name__)

_LAUNCHER_LOOK_SECONDS: Final = 10.0
_REQUESTS: Final = ("checkpoint", "leave")
_REQUESTS_AT_THE_END: Final = ("no-successor",)
"""Those that are taken only when the pod is about to end: a worker that is to stay does not leave by them."""


_UNKNOWN: Final = b"\n"
"""The answer to what this version does not know."""


class RunDirError(HvdElasticError):
    """RUN_DIR cannot be used."""

    exit_code = Exit.BAD_INPUT


class Generation:
    """Counts how often this pod became usable with new processes, over restarts of its container too: the UID stays."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / GENERATION_FILE
        try:
            self.number = max(0, int(self._path.read_text()))
        except (OSError, ValueError):
            self.number = 0

    def begin(self) -> None:
        """Count one more and keep it in RUN_DIR."""
        self.number += 1
        drain.write_line(self._path, str(self.number))


class EntryPoint:
    """A worker. It is usable while every slot is usable and all of them belong to one generation.

    **Generation.** The launcher knows a host as `UID-GENERATION`. A generation ends when a process of any slot ends and
    no newer command replaces it: the launcher has then lost that host with all its slots. The port closes. Slots whose
    process has ended get a fresh standby at once. Slots that still train are *stale*: they belong to the host that is
    gone, and leave when the launcher tells them to. When no slot is stale and every slot is usable again, the next
    generation begins and the port opens. A process that a newer command replaces (after a restart of the launcher) does
    not end the generation: the newer command came to the same host.
    """

    def __init__(
        self,
        settings: PodSettings,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        sshd: Sequence[str] | None,
        ready_port: int = READY_PORT,
    ) -> None:
        self._settings = settings
        self._run_dir = settings.run_dir
        self._loop = EventLoop()
        job = SlotJob(
            environment=dict(environment),
            standby=settings.standby,
            slots=settings.slots,
            program=_program(settings, command, environment),
            leave_seconds=drain_seconds(settings.grace_seconds),
        )
        self._slots = [self._slot(job, number) for number in range(settings.slots)]
        self._ready = ReadyPort(
            self._loop,
            address=settings.ready_address,
            port=ready_port,
            answer=self._answer,
            on_request=self._on_request,
        )
        self._sshd = self._sshd_of(sshd, environment) if sshd is not None else None
        self._adopt: AdoptSocket | None = None
        self._generation = Generation(settings.run_dir)
        self._stale: set[WorkerSlot] = set()
        self._usable = False
        self._leaving = False
        self._checkpoint_requests = drain.CheckpointRequests(self._loop, self._run_dir)
        self._has_refused = False
        self._launcher_seen = time.monotonic()
        self._code = int(Exit.OK)
        self._stopped = StoppedProcesses()
        self._exits = ProcessExits()
        self._oom_kills = OomKills()

    def run(self) -> int:
        """Serve until a signal ends it. Return the exit code. No process is left behind. Raises RunDirError."""
        _prepare(self._run_dir)
        child_processes.adopt_orphans()
        self._catch_signals()
        try:
            self._adopt = AdoptSocket(self._loop, run_dir=self._run_dir, on_client=self._on_client)
        except OSError as error:
            raise RunDirError(f"{self._run_dir}: {error.strerror}") from error
        if self._sshd is not None:
            self._sshd.start()
        self._ready.reserve()
        for slot in self._slots:
            slot.start()
        self._look_for_launcher()
        self._look_at_processes()
        events = FolderCopy(*self._settings.events) if self._settings.events else None
        if events is not None:
            events.start()
        self._loop.run()
        if events is not None:
            events.finish()
        self._ready.release()
        self._adopt.close()
        child_processes.kill_descendants()
        return self._code

    def _slot(self, job: SlotJob, number: int) -> WorkerSlot:
        slot = WorkerSlot(
            self._loop,
            job,
            number,
            on_change=self._update,
            on_lost=lambda: self._lost(slot),
            may_store=self._may_store,
        )
        return slot

    def _sshd_of(self, command: Sequence[str], environment: Mapping[str, str]) -> Sshd:
        return Sshd(self._loop, command=command, environment=environment, on_give_up=self._give_up_sshd)

    def _catch_signals(self) -> None:
        self._loop.on_signal(signal.SIGTERM, self._leave)
        self._loop.on_signal(signal.SIGINT, self._leave)
        self._loop.on_signal(signal.SIGHUP, self._loop.stop)
        self._loop.on_signal(signal.SIGCHLD, self._reap)

    def _reap(self) -> None:
        for pid, code in child_processes.reap(lambda pid: self._owner(pid) is not None):
            slot = self._owner(pid)
            if slot is not None:
                oom = self._oom_kills.look() if code == KILLED else False
                reported = reported_exit(code, take_mark(self._run_dir, pid), oom=oom)
                self._note_exit(slot, reported.code, oom=oom)
                slot.ended(reported, is_retired=self._leaving)
            elif self._sshd is not None and pid == self._sshd.pid:
                self._sshd.ended(code)
        self._end_if_left()

    def _note_exit(self, slot: WorkerSlot, code: int, *, oom: bool | None) -> None:
        if slot.phase is SlotPhase.TRAINING:
            self._exits.note(slot.ending, code, answers.read_heartbeat(self._run_dir).step, oom=oom)

    def _owner(self, pid: int) -> WorkerSlot | None:
        return next((slot for slot in self._slots if slot.pid == pid), None)

    def _lost(self, slot: WorkerSlot) -> None:
        self._stale.discard(slot)
        if slot.phase is not SlotPhase.DONE:
            self._stale.update(
                other for other in self._slots if other is not slot and other.phase is SlotPhase.TRAINING
            )
        if not self._is_training:
            self._clean()
        self._update()

    def _may_store(self) -> bool:
        """Have a process store its state that looks for the word at its commits; another one would only go on."""
        if answers.read_heartbeat(self._run_dir) == answers.NO_HEARTBEAT:
            return False
        drain.announce_launcher_gone(self._run_dir)
        return True

    def _clean(self) -> None:
        """Nothing that was asked of an earlier process concerns the next one."""
        self._checkpoint_requests.forget()
        drain.clean(self._run_dir)

    def _update(self) -> None:
        """Open or close the port, according to the slots."""
        usable = self._is_training if self._leaving else all(slot.is_usable for slot in self._slots) and not self._stale
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
    def _is_training(self) -> bool:
        return any(slot.is_training for slot in self._slots)

    def _answer(self) -> bytes:
        state = WorkerState.TRAINING if self._is_training else WorkerState.WAITING
        state = WorkerState.LEAVING if self._leaving else state
        heartbeat = answers.read_heartbeat(self._run_dir)
        return answers.own_line(self._generation.number, state, heartbeat, self._settings.pod_uid)

    def _on_request(self, line: str, nonce: str) -> bytes:
        verb, _, rest = line.partition(" ")
        if verb in answers.REPORT_REQUESTS:
            return answers.report_answer(verb, self._run_dir, len(self._slots), self._exits.last)
        if verb == "launcher":
            self._launcher_seen = time.monotonic()
        elif verb not in (*_REQUESTS, *_REQUESTS_AT_THE_END):
            return _UNKNOWN
        elif self._is_training and verb in (_REQUESTS_AT_THE_END if self._leaving else _REQUESTS):
            self._pass_on_request(verb, rest, nonce)
        return b""

    def _pass_on_request(self, verb: str, rest: str, nonce: str) -> None:
        word, _, reason = rest.partition(" ")
        if not self._is_believed(verb, word, reason, nonce):
            self._refuse_request(verb)
        elif verb == "checkpoint":
            self._checkpoint_requests.take(reason)
        elif verb == "no-successor":
            drain.announce_no_successor(self._run_dir)
        else:
            log.info("training is told to leave: the launcher is about to end")
            drain.announce(self._run_dir, "the launcher is about to end")

    def _is_believed(self, verb: str, word: str, reason: str, nonce: str) -> bool:
        key = job_key.request_key(self._settings.ssh_key)
        if key == job_key.NO_KEY:
            return verb == "checkpoint"
        if not nonce:
            return job_key.is_same(word, job_key.bearer_word(self._settings.ssh_key))
        return job_key.is_same(word, job_key.sign(key, nonce, f"{verb} {reason}"))

    def _refuse_request(self, verb: str) -> None:
        """Say it once: strangers must not fill the log."""
        if not self._has_refused:
            self._has_refused = True
            log.warning("a request %r without the job's key was refused; others will be, too", verb)

    def _on_client(self, client: AdoptClient) -> None:
        if client.local_rank >= len(self._slots):
            client.say(f"local rank {client.local_rank}, but this worker has {count_words(len(self._slots), 'slot')}")
            client.finish(Exit.BAD_INPUT)
        elif self._leaving:
            client.say("this worker is about to end")
            client.finish(Exit.HOST_CHANGE)
        else:
            if not self._is_training:
                self._clean()
            self._slots[client.local_rank].adopt(client)

    def _look_for_launcher(self) -> None:
        """End if nothing was heard of a launcher for too long: idle GPUs are somebody else's.

        An operator that may not resume a job leaves its workers like that, and so does a launcher that finds no place.
        """
        limit = self._settings.launcher_seconds
        if math.isinf(limit):
            return
        now = time.monotonic()
        if self._is_training:
            self._launcher_seen = now
        if now - self._launcher_seen > limit and not self._leaving:
            log.error("no launcher for %g s: this worker ends, so that its resources are free", limit)
            self._code = int(Exit.NO_LAUNCHER)
            self._loop.stop()
            return
        self._loop.after(min(limit / 10, _LAUNCHER_LOOK_SECONDS), self._look_for_launcher)

    def _look_at_processes(self) -> None:
        """Kill what is stopped for good. Its death is told, and the slot gets another process."""
        slots = {slot.pid: slot for slot in self._slots if slot.pid is not None}
        for pid in self._stopped.overdue({pid: is_stopped(pid) for pid in slots}, time.monotonic()):
            log.error("process %d has been stopped for %g s: it is killed", pid, STOPPED_SECONDS)
            slots[pid].kill_stopped()
        self._oom_kills.look()
        self._loop.after(LOOK_SECONDS, self._look_at_processes)

    def _leave(self) -> None:
        if self._leaving:
            log.warning("a second signal: ending at once")
            self._loop.stop()
            return
        self._leaving = True
        if self._is_training:
            drain.announce(self._run_dir, "this pod is about to end")
        for slot in self._slots:
            slot.retire()
        if not self._is_training:
            self._loop.stop()
            return
        seconds = drain_seconds(self._settings.grace_seconds)
        log.info("leaving: the training process has %g s left", seconds)
        self._loop.after(seconds, self._grace_is_over)

    def _grace_is_over(self) -> None:
        log.warning("the grace is over: the training process is killed")
        self._loop.stop()

    def _end_if_left(self) -> None:
        if self._leaving and not self._is_training:
            self._loop.after(drain.LINGER_SECONDS, self._loop.stop)

    def _give_up_sshd(self) -> None:
        if not self._is_training:
            log.error("sshd does not stay up, so no launcher can reach this worker")
            self._code = int(Exit.ERROR)
            self._loop.stop()


def _program(settings: PodSettings, command: Sequence[str], environment: Mapping[str, str]) -> Program | None:
    program = read_program(command, environment)
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
        raise RunDirError(f"{run_dir}: this user cannot write to it")
