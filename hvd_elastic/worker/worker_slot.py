"""One slot of a worker: a standby that becomes a training process, again and again."""

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import Exit, Standby
from hvd_elastic.worker import child_processes
from hvd_elastic.worker.adoption import adopt_protocol
from hvd_elastic.worker.adoption.adopt_socket import Client
from hvd_elastic.worker.event_loop import EventLoop, Timer
from hvd_elastic.worker.slot_commands import adopted_environment, plain_command, standby_command
from hvd_elastic.worker.slot_phase import SlotHistory, SlotPhase, after_end
from hvd_elastic.worker.standby.program import Program, read

log = logging.getLogger(__name__)

END_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL for a training process whose launcher is gone or that a newer command replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotJob:
    """What every slot of this pod runs."""

    environment: Mapping[str, str]
    standby: Standby
    slots: int
    program: Program | None
    """None: the command cannot be run ahead."""


class WorkerSlot:
    """Starts standbys, hands a launcher's command to one, and passes its end back.

    `counts` says whether the slot is part of a usable worker: from the moment its standby waits until its process ends
    with no other command waiting for it. `on_change` is called after every change of `counts` or `phase`, `on_lost`
    when a process has ended that no other command replaces.
    """

    def __init__(
        self,
        reactor: EventLoop,
        job: SlotJob,
        number: int,
        *,
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._job = job
        self._number = number
        self._on_change = on_change
        self._on_lost = on_lost
        self._record = SlotHistory()
        self._channel: socket.socket | None = None
        self._client: Client | None = None
        self._claim: Client | None = None
        self._kill: Timer | None = None
        self._start: Timer | None = None
        self.phase = SlotPhase.RESTING
        self.pid: int | None = None
        self.counts = False

    @property
    def trains(self) -> bool:
        """Whether a launcher's command runs here, or waits for its predecessor to end."""
        return self.phase is SlotPhase.TRAINING or (self.counts and self._claim is not None)

    def start(self) -> None:
        """Start a standby, or become cold where there can be none."""
        self._start = None
        program = self._job.program
        if program is None or self._job.standby is Standby.OFF:
            self._become(SlotPhase.COLD)
            return
        ours, theirs = socket.socketpair()
        with theirs:
            command = standby_command(
                program, self._job.standby, theirs.fileno(), slot=self._number, slots=self._job.slots
            )
            self.pid = child_processes.spawn(command, environment=self._job.environment, keep=[theirs.fileno()])
        self._channel = ours
        self._reactor.watch(ours.fileno(), self._hear)
        self._become(SlotPhase.WARMING)

    def adopt(self, client: Client) -> None:
        """Serve a launcher's command: at once, or as soon as what is in its way has ended."""
        self._refuse_claim("another command came for this slot", Exit.HOST_CHANGE)
        self._claim = client
        client.on_signal = lambda number: self._refuse_claim(None, 128 + number)
        client.on_gone = self._forget_claim
        if self.phase is SlotPhase.TRAINING:
            log.warning("slot %d: a new command replaces process %s", self._number, self.pid)
            self._end()
        elif self.phase is SlotPhase.DONE:
            self._rest(0.0)
        self._serve()

    def retire(self) -> None:
        """Start nothing more, and end what does not train: the pod is about to end."""
        if self._start is not None:
            self._start.cancel()
        self._refuse_claim("this worker is about to end", Exit.HOST_CHANGE)
        if self.pid is not None and self.phase is not SlotPhase.TRAINING:
            child_processes.send(self.pid, signal.SIGKILL)
        self.counts = False

    def ended(self, code: int, *, retired: bool) -> None:
        """Take the end of this slot's process, as a shell reports it."""
        phase, self.pid = self.phase, None
        self._close_channel()
        if self._kill is not None:
            self._kill.cancel()
            self._kill = None
        delivered = self._client.finish(code) if self._client is not None else False
        self._client = None
        if retired:
            self._become(SlotPhase.DONE)
            return
        coming = after_end(phase, code, self._record, delivered=delivered, claimed=self._claim is not None)
        self._record = coming.record
        self._report(phase, code, coming.phase, coming.delay_seconds)
        self.phase = SlotPhase.DONE if coming.phase is SlotPhase.DONE else SlotPhase.RESTING
        if self._claim is None and self.counts:
            self.counts = False
            self._on_lost()
        if coming.phase is SlotPhase.RESTING:
            self._rest(coming.delay_seconds)
        else:
            self._become(coming.phase)

    def _become(self, phase: SlotPhase) -> None:
        self.phase = phase
        if phase in (SlotPhase.WAITING, SlotPhase.COLD):
            self.counts = True
        self._serve()
        self._on_change()

    def _rest(self, delay_seconds: float) -> None:
        self._start = self._reactor.after(delay_seconds, self.start)
        self._become(SlotPhase.RESTING)

    def _hear(self) -> None:
        """The standby waits, or is at its end (then SIGCHLD tells the rest)."""
        assert self._channel is not None
        try:
            word = self._channel.recv(1)
        except OSError:
            word = b""
        if word == adopt_protocol.WAITING and self.phase is SlotPhase.WARMING:
            log.info("slot %d: standby %s waits", self._number, self.pid)
            self._become(SlotPhase.WAITING)
        elif not word:
            self._close_channel()

    def _serve(self) -> None:
        """Hand the command that waits to the standby that waits, or start it."""
        client = self._claim
        if client is None or self.phase not in (SlotPhase.WAITING, SlotPhase.COLD):
            return
        if self.phase is SlotPhase.WAITING and self._is_ours(client):
            if not self._hand_over(client):
                return
        else:
            self._run_plain(client)
        self._claim, self._client = None, client
        client.on_signal = self._pass_on
        client.on_gone = self._launcher_gone
        client.request.close()
        log.info("slot %d: process %s trains", self._number, self.pid)
        self._become(SlotPhase.TRAINING)

    def _is_ours(self, client: Client) -> bool:
        """Whether the command is the one that the standby runs; `python3 x` is the same as `python x`."""
        return read(client.command.argv, self._job.environment) == self._job.program

    def _hand_over(self, client: Client) -> bool:
        """Pass the request on; False where the standby is just gone: the claim is served by the next one."""
        if self._channel is None:
            return False
        try:
            adopt_protocol.send(self._channel, client.request)
        except OSError:
            return False
        self._close_channel()
        return True

    def _run_plain(self, client: Client) -> None:
        if self.pid is not None:
            log.warning("slot %d: the launcher's command is not this worker's; the standby is of no use", self._number)
            child_processes.send(self.pid, signal.SIGKILL)
            self._close_channel()
        environment = adopted_environment(self._job.environment, client.command.environment)
        directory: str | None = client.command.directory
        if not os.path.isdir(client.command.directory):  # noqa: PTH112
            client.say(f"{directory}: no such folder here; the command starts in {Path.cwd()}")
            directory = None
        command = plain_command(client.command.argv, environment)
        stdio = client.request.stdio
        self.pid = child_processes.spawn(command, environment=environment, directory=directory, stdio=stdio)

    def _pass_on(self, number: int) -> None:
        if self.pid is not None and 0 < number < signal.NSIG:
            child_processes.send(self.pid, number)

    def _launcher_gone(self) -> None:
        log.warning("slot %d: the launcher's connection is gone; process %s is ended", self._number, self.pid)
        self._end()

    def _end(self) -> None:
        if self.pid is None or self._kill is not None:
            return
        pid = self.pid
        child_processes.send(pid, signal.SIGTERM)
        self._kill = self._reactor.after(END_SECONDS, lambda: child_processes.send(pid, signal.SIGKILL))

    def _refuse_claim(self, message: str | None, code: int) -> None:
        claim, self._claim = self._claim, None
        if claim is None:
            return
        if message is not None:
            claim.say(message)
        claim.finish(code)

    def _forget_claim(self) -> None:
        if self._claim is not None:
            self._claim.request.close()
            self._claim = None
        if self.phase in (SlotPhase.RESTING, SlotPhase.WARMING):
            self.counts = False
            self._on_change()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._reactor.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None

    def _report(self, phase: SlotPhase, code: int, coming: SlotPhase, delay_seconds: float) -> None:
        what = "training process" if phase is SlotPhase.TRAINING else "standby"
        log.info("slot %d: %s ended with %d", self._number, what, code)
        if phase is SlotPhase.WARMING and coming is SlotPhase.COLD and code == 0:
            log.warning("the script ended without hvd.init(): it is started by the launcher, not ahead of it")
        elif phase is SlotPhase.WARMING and coming is SlotPhase.COLD:
            log.error("the script fails before hvd.init(): the launcher's command will start it, to fail in its sight")
        elif delay_seconds:
            log.warning("slot %d: the next standby is started in %g s", self._number, delay_seconds)
