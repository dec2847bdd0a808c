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
from hvd_elastic.system import child_processes
from hvd_elastic.worker.adoption import adopt_protocol
from hvd_elastic.worker.adoption.adopt_socket import AdoptClient
from hvd_elastic.worker.adoption.adopted_environment import adopted_environment
from hvd_elastic.worker.early_exit import ReportedExit
from hvd_elastic.worker.event_loop import EventLoop, Timer
from hvd_elastic.worker.process_exits import Ending
from hvd_elastic.worker.slot_phase import NextPhase, SlotHistory, SlotPhase, after_end
from hvd_elastic.worker.standby.program import Program, read_program
from hvd_elastic.worker.standby.standby_command import plain_command, standby_command
from hvd_elastic.worker.stopped_processes import is_stopped

log = logging.getLogger(__name__)

END_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL, for a training process whose launcher is gone or that a newer command replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotJob:
    """The job that every slot of this pod runs."""

    environment: Mapping[str, str]
    standby: Standby
    slots: int
    program: Program | None
    """None if the command cannot be run ahead."""
    leave_seconds: float
    """For a training process to store its state and to end by itself, once its launcher is gone."""


class WorkerSlot:
    """Starts standbys, hands a launcher's command to one, and reports its end to the launcher.

    `is_usable`: whether the slot can be part of a usable worker, from the moment its standby waits until its process
    ends while no other command waits for the slot. `on_change` is called after every change of `is_usable` or `phase`,
    `on_lost` when a process has ended and no other command replaces it. `may_store` tells the training process that its
    launcher is gone, and returns whether that stores its state and ends by itself.
    """

    def __init__(
        self,
        loop: EventLoop,
        job: SlotJob,
        number: int,
        *,
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
        may_store: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._job = job
        self._number = number
        self._on_change = on_change
        self._on_lost = on_lost
        self._may_store = may_store
        self._history = SlotHistory()
        self._channel: socket.socket | None = None
        self._client: AdoptClient | None = None
        self._next_client: AdoptClient | None = None
        self._storing: Timer | None = None
        self._kill: Timer | None = None
        self._start: Timer | None = None
        self.ending = Ending()
        """Of the present process, if it trains."""
        self.phase = SlotPhase.RESTING
        self.pid: int | None = None
        self.is_usable = False

    @property
    def is_training(self) -> bool:
        """Whether a launcher's command runs here, or waits for the previous one to end."""
        return self.phase is SlotPhase.TRAINING or (self.is_usable and self._next_client is not None)

    def start(self) -> None:
        """Start a standby, or become cold if there can be none."""
        self._start = None
        program = self._job.program
        if program is None or self._job.standby is Standby.OFF:
            self._become(SlotPhase.COLD)
            return
        ours, standbys = socket.socketpair()
        with standbys:
            command = standby_command(
                program, self._job.standby, standbys.fileno(), slot=self._number, slots=self._job.slots
            )
            self.pid = child_processes.spawn(command, environment=self._job.environment, keep=[standbys.fileno()])
        self._channel = ours
        self._loop.watch(ours.fileno(), self._read_channel)
        self._become(SlotPhase.WARMING)

    def adopt(self, client: AdoptClient) -> None:
        """Run a launcher's command: at once, or when the slot's present process has ended or is ready for it."""
        self._refuse_next("another command came for this slot", Exit.HOST_CHANGE)
        self._next_client = client
        client.on_signal = lambda number: self._refuse_next(None, 128 + number)
        client.on_gone = self._forget_next
        if self.phase is SlotPhase.TRAINING:
            log.warning("slot %d: a new command replaces process %s", self._number, self.pid)
            self._end()
        elif self.phase is SlotPhase.DONE:
            self._rest(0.0)
        self._start_next()

    def kill_stopped(self) -> None:
        if self.pid is not None:
            self.ending.hung = True
            child_processes.send(self.pid, signal.SIGKILL)

    def retire(self) -> None:
        """Start nothing more, and end a process that does not train: the pod is about to end."""
        if self._start is not None:
            self._start.cancel()
        self._refuse_next("this worker is about to end", Exit.HOST_CHANGE)
        if self.pid is not None and self.phase is not SlotPhase.TRAINING:
            child_processes.send(self.pid, signal.SIGKILL)
        self.is_usable = False

    def ended(self, end: ReportedExit, *, is_retired: bool) -> None:
        """Note the end of this slot's process. `is_retired`: `retire` was called."""
        code, phase, self.pid = end.code, self.phase, None
        self._close_channel()
        for timer in (self._storing, self._kill):
            if timer is not None:
                timer.cancel()
        self._storing = self._kill = None
        delivered = self._client.finish(code, end.message) if self._client is not None else False
        self._client = None
        if is_retired:
            self._become(SlotPhase.DONE)
            return
        following = after_end(
            phase, code, self._history, is_delivered=delivered, is_replaced=self._next_client is not None
        )
        self._history = following.history
        self._log_end(phase, code, following)
        self.phase = SlotPhase.DONE if following.phase is SlotPhase.DONE else SlotPhase.RESTING
        if self._next_client is None and self.is_usable:
            self.is_usable = False
            self._on_lost()
        if following.phase is SlotPhase.RESTING:
            self._rest(following.delay_seconds)
        else:
            self._become(following.phase)

    def _become(self, phase: SlotPhase) -> None:
        self.phase = phase
        if phase in (SlotPhase.WAITING, SlotPhase.COLD):
            self.is_usable = True
        self._start_next()
        self._on_change()

    def _rest(self, delay_seconds: float) -> None:
        self._start = self._loop.after(delay_seconds, self.start)
        self._become(SlotPhase.RESTING)

    def _read_channel(self) -> None:
        """Note that the standby waits, or that it has closed its end; SIGCHLD reports the end of the process."""
        assert self._channel is not None
        try:
            message = self._channel.recv(1)
        except OSError:
            message = b""
        if message == adopt_protocol.WAITING and self.phase is SlotPhase.WARMING:
            log.info("slot %d: standby %s waits", self._number, self.pid)
            self._become(SlotPhase.WAITING)
        elif not message:
            self._close_channel()

    def _start_next(self) -> None:
        """Hand the next command to the standby that waits, or start it as it is."""
        client = self._next_client
        if client is None or self.phase not in (SlotPhase.WAITING, SlotPhase.COLD):
            return
        if self.phase is SlotPhase.WAITING and self._is_ours(client):
            if not self._hand_over(client):
                return
        else:
            self._run_plain(client)
        self._next_client, self._client = None, client
        self.ending = Ending()
        client.on_signal = self._pass_on
        client.on_gone = self._launcher_gone
        client.handed_over()
        log.info("slot %d: process %s trains", self._number, self.pid)
        self._become(SlotPhase.TRAINING)

    def _is_ours(self, client: AdoptClient) -> bool:
        """Whether the standby runs this command; `python3 x` is the same as `python x`."""
        return read_program(client.command.argv, self._job.environment) == self._job.program

    def _hand_over(self, client: AdoptClient) -> bool:
        """Send the request to the standby. False if that has just ended: then the next standby gets the command."""
        if self._channel is None:
            return False
        try:
            adopt_protocol.send(self._channel, client.request)
        except OSError:
            return False
        self._close_channel()
        return True

    def _run_plain(self, client: AdoptClient) -> None:
        if self.pid is not None:
            log.warning("slot %d: the launcher's command differs from the pod's; its standby is ended", self._number)
            child_processes.send(self.pid, signal.SIGKILL)
            self._close_channel()
        environment = adopted_environment(self._job.environment, client.command.environment)
        directory: str | None = client.command.directory
        if not os.path.isdir(client.command.directory):  # noqa: PTH112
            client.say(f"{directory}: no such folder in this pod; the command starts in {Path.cwd()}")
            directory = None
        command = plain_command(client.command.argv, environment)
        stdio = client.request.stdio
        self.pid = child_processes.spawn(command, environment=environment, directory=directory, stdio=stdio)

    def _pass_on(self, number: int) -> None:
        if self.pid is not None and 0 < number < signal.NSIG:
            self._note_order(self.pid)
            child_processes.send(self.pid, number)

    def _launcher_gone(self) -> None:
        if self.pid is None or is_stopped(self.pid) or not self._may_store():
            log.warning("slot %d: the launcher has disconnected; process %s is ended", self._number, self.pid)
            self._end()
            return
        log.warning("slot %d: the launcher has disconnected; process %s stores its state", self._number, self.pid)
        self._note_order(self.pid)
        self._storing = self._loop.after(self._job.leave_seconds, self._end)

    def _end(self) -> None:
        if self.pid is None or self._kill is not None:
            return
        pid = self.pid
        self._note_order(pid)
        child_processes.send(pid, signal.SIGTERM)
        self._kill = self._loop.after(END_SECONDS, lambda: child_processes.send(pid, signal.SIGKILL))

    def _note_order(self, pid: int) -> None:
        """The launcher has the process ended: because it hangs, or for a reason of its own."""
        self.ending.told = True
        self.ending.hung |= is_stopped(pid)

    def _refuse_next(self, message: str | None, code: int) -> None:
        client, self._next_client = self._next_client, None
        if client is None:
            return
        client.finish(code, message or "")

    def _forget_next(self) -> None:
        if self._next_client is not None:
            self._next_client.request.close()
            self._next_client = None
        if self.phase in (SlotPhase.RESTING, SlotPhase.WARMING):
            self.is_usable = False
            self._on_change()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._loop.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None

    def _log_end(self, phase: SlotPhase, code: int, following: NextPhase) -> None:
        what = "training process" if phase is SlotPhase.TRAINING else "standby"
        log.info("slot %d: %s ended with %d", self._number, what, code)
        if phase is SlotPhase.WARMING and following.phase is SlotPhase.COLD and code == 0:
            log.warning("the script ended without hvd.init(): the launcher starts it, without a standby")
        elif phase is SlotPhase.WARMING and following.phase is SlotPhase.COLD:
            log.error("the script fails before hvd.init(): the launcher's command will start it and get its exit code")
        elif following.delay_seconds:
            log.warning("slot %d: the next standby is started in %g s", self._number, following.delay_seconds)
