"""The processes that the launcher has started: their outputs, their ends, and that none of them outlives the job."""

import contextlib
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.exit_codes import ExitVerdict, judge
from hvd_elastic.launcher.remote.command_runner import CommandRunner, RunningCommand
from hvd_elastic.launcher.remote.worker_output import OutputReader, OutputStream
from hvd_elastic.system.background_threads import error_words
from hvd_elastic.system.processes import read_stat

logger = logging.getLogger(__name__)

TERM_SECONDS: Final = 2.0
"""Between SIGTERM and SIGKILL."""

RECORD_FILE: Final = "launched"
"""In RUN_DIR: `PID START_TICKS` of each process, for a successor that has to end what a killed launcher left."""

_ENTRY: Final = re.compile(rb"([1-9][0-9]{0,9}) ([1-9][0-9]{0,19})")
"""A line of it. Others are left alone: a process that had ended when it was noted has no start time, and a file may be
torn or another program's."""


class WorkerProcess:
    """One running command."""

    def __init__(self, command: RunningCommand, outputs: tuple[OutputStream, OutputStream]) -> None:
        self.process = command.process
        self._command = command
        self._stdout, self._stderr = outputs

    def wait(self) -> tuple[int, str]:
        """Wait for its end. Returns its exit code and the last lines of its error output.

        The lines of a script's own error are waited for.
        """
        code = self._command.wait()
        # A process that inherited the pipe may hold it open. A death by signal leaves no message to wait for.
        deadline = time.monotonic() + (1.0 if judge(code) is ExitVerdict.SCRIPT_ERROR else 0.05)
        for stream in (self._stderr, self._stdout):
            stream.drained.wait(max(0.0, deadline - time.monotonic()))
        return code, "\n".join(filter(None, [*self._stderr.tail, self._command.last_words]))

    def signal(self, number: int) -> None:
        """Signal the whole session; no error if it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class WorkerProcesses:
    """All running commands, by number."""

    def __init__(self, runner: CommandRunner, outputs: OutputReader, run_dir: Path) -> None:
        self._runner, self._outputs = runner, outputs
        self._record = run_dir / RECORD_FILE
        self._running: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()
        self.at_once = False
        """Kill at once what `end_all` ends. A signal handler may set it."""

    def start(
        self,
        number: int,
        host: Host,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[OutputStream, OutputStream],
        ended: Callable[[int, int, str], None],
    ) -> None:
        """Start a command. Raises OSError.

        `ended(number, code, message)` is called from a thread when the command has ended.
        """
        running = self._runner.start(host, command, environment)
        process = running.process
        self._note(process.pid)
        worker = WorkerProcess(running, streams)
        with self._lock:
            self._running[number] = worker
        for pipe, stream in zip((process.stdout, process.stderr), streams, strict=True):
            assert pipe is not None
            self._outputs.add(pipe, stream)
        threading.Thread(target=self._reap, args=(number, worker, ended), name=f"worker {number}", daemon=True).start()

    def _note(self, pid: int) -> None:
        try:
            with self._record.open("a", encoding="ascii") as record:
                record.write(f"{pid} {start_ticks(pid)}\n")
        except OSError as error:
            logger.warning("process %d is in no record, so a successor would not end it: %s", pid, error)

    def end(self, number: int, *, at_once: bool) -> None:
        """Send SIGTERM, and SIGKILL after TERM_SECONDS; or SIGKILL now. Returns at once."""
        with self._lock:
            worker = self._running.get(number)
        if worker is None:
            return
        worker.signal(signal.SIGKILL if at_once else signal.SIGTERM)
        if not at_once:
            timer = threading.Timer(TERM_SECONDS, self.end, (number,), {"at_once": True})
            timer.daemon = True
            timer.start()

    def end_all(self) -> None:
        """End all; returns when none is left, at most TERM_SECONDS and a second later."""
        for number, wait_seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 1.0)):
            with self._lock:
                running = list(self._running.values())
            for worker in running:
                worker.signal(number)
            deadline = time.monotonic() + wait_seconds
            while self._running and time.monotonic() < deadline:
                if self.at_once and number == signal.SIGTERM:
                    break
                time.sleep(0.01)
        for worker in list(self._running.values()):
            logger.error("process %d does not end", worker.process.pid)
        with contextlib.suppress(OSError):
            self._record.unlink(missing_ok=True)

    def _reap(self, number: int, worker: WorkerProcess, ended: Callable[[int, int, str], None]) -> None:
        try:
            code, message = worker.wait()
        except Exception as error:  # noqa: BLE001 - the launcher must learn of the end, with the code at least
            code, message = worker.process.wait(), f"its last words are not known: {error_words(error)}"
            logger.warning("process %d: %s", worker.process.pid, message)
        # End what the command left in its session, so that nothing of it reaches into the next world.
        worker.signal(signal.SIGKILL)
        with self._lock:
            self._running.pop(number, None)
        ended(number, code, message)


def end_leftovers(run_dir: Path) -> int:
    """End the processes that an earlier launcher left in this RUN_DIR's record. Returns how many there were.

    A process is known by its id and its start time, so a later process with the same id is left alone.
    """
    record = run_dir / RECORD_FILE
    try:
        lines = record.read_bytes().split(b"\n")
    except FileNotFoundError:
        return 0
    except OSError as error:
        logger.warning("what an earlier launcher has left is not known: %s", error)
        return 0
    entries = [(int(match[1]), match[2].decode()) for match in map(_ENTRY.fullmatch, lines) if match]
    left = [pid for pid, started in entries if start_ticks(pid) == started]
    for number, wait_seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
        deadline = time.monotonic() + wait_seconds
        while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < deadline:
            time.sleep(0.01)
    with contextlib.suppress(OSError):
        record.unlink(missing_ok=True)
    return len(left)


def start_ticks(pid: int) -> str:
    """When a process was started, in clock ticks since boot, as the record has it; empty if it does not exist."""
    stat = read_stat(pid)
    return "" if stat is None else str(stat.start_ticks)
