"""Runs `horovodrun` (`stock_horovodrun`), and starts it once more when its workers were taken away.

`core.supervision` decides. This carries it out: one child process at a time, the list of hosts, and the signals.
"""

import contextlib
import json
import logging
import math
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.job_beginning import has_begun
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.exit_codes import explain
from hvd_elastic.launcher.core.supervision import (
    Decision,
    Finish,
    Release,
    Start,
    StopLauncher,
    Supervision,
    SupervisionLimits,
)
from hvd_elastic.launcher.horovodrun.horovodrun_command import HorovodrunCommand
from hvd_elastic.launcher.horovodrun.horovodrun_process import HorovodrunProcess
from hvd_elastic.launcher.host_sources import SnapshotSource
from hvd_elastic.mpijob.contract import HOSTS_SCRIPT, STATUS_FILE, Exit
from hvd_elastic.system import child_processes
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.system.processes import read_stat

logger = logging.getLogger(__name__)

_TICK_SECONDS: Final = 0.2
_LIST_TICK_SECONDS: Final = 0.02
_END_SECONDS: Final = 10.0
"""From SIGTERM to SIGKILL. horovodrun gives its workers 5 s (`GRACEFUL_TERMINATION_TIME_S`)."""
_HELD_SCRIPT: Final = "held-hosts"
"""In RUN_DIR: the discovery script of a horovodrun that is started held. It prints no host while _HOLD exists."""
_HOLD: Final = "hold"
_ENDING_SIGNALS: Final = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))


@dataclass(slots=True)
class _HostList:
    """The present list, written by the source's thread."""

    hosts: tuple[Host, ...] = ()
    is_known: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def publish(self, hosts: tuple[Host, ...]) -> None:
        self.hosts = hosts
        self.is_known = True


def supervise(command: HorovodrunCommand) -> Finish:
    """Run the job to its end. Call it in the main thread of a process of its own: it takes over the signals.

    Returns the exit code and why: horovodrun's own, or 128 + a signal.
    """
    child_processes.adopt_orphans()
    # A signal that is blocked is received though it is ignored, as SIGHUP is under nohup.
    ending = frozenset(number for number in _ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending | {signal.SIGCHLD})
    listed = _HostList()
    source = SnapshotSource(command.run_dir)
    start_thread("hosts", lambda: source.watch(listed.publish, listed.stop), log=logger, stopped=listed.stop)
    try:
        waiting = HorovodrunProcess(command)  # it imports meanwhile
        finish = (
            _wait_for_list(listed, ending)
            or _Supervisor(command, _supervision(command), listed, ending, waiting=waiting).run()
        )
        _leave_word(command.run_dir, finish)
        return finish
    finally:
        listed.stop.set()
        child_processes.kill_descendants()


def _wait_for_list(listed: _HostList, ending: frozenset[signal.Signals]) -> Finish | None:
    """The sidecar may start after its launcher. A signal ends the wait, and the job."""
    while not listed.is_known:
        received = signal.sigtimedwait(ending, _LIST_TICK_SECONDS)
        if received is not None:
            return _ended_by(received.si_signo)
    return None


def _supervision(command: HorovodrunCommand) -> Supervision:
    """Before its first list the sidecar has said whether the job has begun."""
    start = command.minimum if has_begun(command.run_dir) else command.start
    return Supervision(SupervisionLimits(start=start, minimum=command.minimum))


def _ended_by(number: int) -> Finish:
    name = signal.Signals(number).name
    logger.info("%s received", name)
    return Finish(exit_code=128 + number, reason=f"ended by {name}")


class _Supervisor:
    def __init__(
        self,
        command: HorovodrunCommand,
        supervision: Supervision,
        listed: _HostList,
        ending: frozenset[signal.Signals],
        *,
        waiting: HorovodrunProcess,
    ) -> None:
        """`waiting`: the first run, which has not begun."""
        self._waiting: HorovodrunProcess | None = waiting
        self._ending = ending
        """The signals that end the job. They are blocked, and so is SIGCHLD."""
        self._command, self._supervision, self._listed = command, supervision, listed
        self._pid: int | None = None
        self._run: HorovodrunProcess | None = None
        self._unexplained: HorovodrunProcess | None = None
        """A run that ended for want of a worker's own reason."""
        self._starts = 0

    def run(self) -> Finish:
        while True:
            now = time.monotonic()
            self._supervision.set_hosts(self._listed.hosts, now)
            if self._run is not None and self._run.output.mistake is not None:
                self._supervision.script_is_wrong(self._run.output.mistake)
            asks, pid = self._supervision.asks_for_workers, self._pid
            worker = oldest_worker(pid) if asks and pid is not None else None
            decision = self._supervision.decide(now, oldest_worker=worker)
            if isinstance(decision, Finish):
                return self._finish(decision)
            self._carry_out(decision)
            received = signal.sigtimedwait(self._ending | {signal.SIGCHLD}, _TICK_SECONDS)
            if received is None or received.si_signo == signal.SIGCHLD:
                self._reap()
                continue
            return self._end_by(received.si_signo)

    def _carry_out(self, decision: Decision | None) -> None:
        match decision:
            case Start(processes=processes, held=held):
                self._start(processes, held=held)
            case Release():
                (self._command.run_dir / _HOLD).unlink(missing_ok=True)
                logger.info("horovodrun is shown its hosts")
            case StopLauncher(reason=reason) if self._pid is not None:
                logger.info("horovodrun is stopped: %s", reason)
                self._stop(self._pid)

    def _start(self, processes: int, *, held: bool) -> None:
        self._starts += 1
        arguments = self._command.arguments
        if self._starts > 1 or processes != self._command.start:
            logger.info("the job begins again, as soon as %d processes fit", processes)
            arguments = self._command.beginning_with(processes, discovery_script=self._hold() if held else None)
        self._run, self._waiting = self._waiting or HorovodrunProcess(self._command), None
        self._pid = self._run.begin(arguments)

    def _hold(self) -> Path:
        """Write the script that prints no host until Release; return its path."""
        run_dir = self._command.run_dir
        (run_dir / _HOLD).touch()
        script = run_dir / _HELD_SCRIPT
        text = f'#!/bin/sh\n[ -e "${{0%/*}}/{_HOLD}" ] || exec "${{0%/*}}/{HOSTS_SCRIPT}"\n'
        replace_file(script, text, mode=0o755)
        return script

    def _reap(self) -> None:
        """Take notice of every child that has ended; what horovodrun leaves behind goes with it."""
        for pid, code in child_processes.reap(lambda pid: pid == self._pid):
            if pid == self._pid:
                self._pid = None
                child_processes.kill_descendants()
                assert self._run is not None
                worker_code = self._run.output.worker_code()
                self._unexplained = self._run if worker_code is None else None
                logger.info("horovodrun has ended with %d%s", code, _of_worker(worker_code))
                end = Exit.RESET_LIMIT if self._run.output.has_reached_reset_limit else code
                said = self._run.output.worker_sentence
                self._supervision.launcher_ended(end, time.monotonic(), worker_code=worker_code, said=said)

    def _stop(self, pid: int, *, hurried_by: frozenset[signal.Signals] = frozenset()) -> None:
        """End horovodrun, by force if it does not end itself. Without workers it never does: it waits for hosts.

        A signal of `hurried_by` has it ended by force at once.
        """
        _signal_process(pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            received = signal.sigtimedwait({signal.SIGCHLD} | hurried_by, _TICK_SECONDS)
            self._reap()
            if self._pid is None:
                return
            if received is not None and received.si_signo in hurried_by:
                break
            if oldest_worker(pid) is None:
                break
        child_processes.send(pid, signal.SIGKILL)
        while self._pid is not None:
            signal.sigtimedwait({signal.SIGCHLD}, _TICK_SECONDS)
            self._reap()

    def _finish(self, decision: Finish) -> Finish:
        if self._pid is not None:
            self._stop(self._pid)
        if decision.exit_code and self._unexplained is not None:
            self._unexplained.output.show_last_words()
        return decision

    def _end_by(self, number: int) -> Finish:
        finish = _ended_by(number)
        if self._pid is not None:
            self._stop(self._pid, hurried_by=self._ending)
        return finish


def _leave_word(run_dir: Path, finish: Finish) -> None:
    """Tell the sidecar how the job has ended: it acts on it before the kubelet has said it."""
    document = {"state": "ended", "exit_code": finish.exit_code, "reason": finish.reason}
    try:
        replace_file(run_dir / STATUS_FILE, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        logger.warning("cannot leave the exit code for the sidecar: %s", error)


def _of_worker(code: int | None) -> str:
    return "" if code is None else f", because a worker has ended with {explain(code)}"


def _signal_process(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def oldest_worker(pid: int) -> float | None:
    """For how many seconds the oldest command runs that horovodrun, process `pid`, has on a host; None: there is none.

    It starts each by a process of its own (`runner/common/util/safe_shell_exec.py`), so the command is a grandchild.
    """
    children = child_processes.children_by_parent()
    commands = [command for helper in children.get(pid, ()) for command in children.get(helper, ())]
    started = min(map(_started, commands), default=math.inf)
    return None if started == math.inf else time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _started(pid: int) -> float:
    """Seconds since boot at which the process was started; infinite if it is gone."""
    stat = read_stat(pid)
    return math.inf if stat is None or stat.state == "Z" else stat.start_ticks / os.sysconf("SC_CLK_TCK")
