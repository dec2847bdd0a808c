"""The processes that the launcher has started: their outputs, their ends, and that none is left behind."""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.launcher.core.hosts import Host
from hvd_elastic.launcher.remote.worker_output import Outputs, Stream
from hvd_elastic.launcher.remote.worker_shell import Shell

logger = logging.getLogger(__name__)

TERM_SECONDS: Final = 2.0
"""Between asking a process to end and killing it."""

RECORD_FILE: Final = "launched"
"""In RUN_DIR: `PID START_TIME` of each process, for a successor that has to end what a killed launcher left."""


class WorkerProcess:
    """One running command."""

    def __init__(self, process: subprocess.Popen[bytes], outputs: tuple[Stream, Stream]) -> None:
        self.process = process
        self._stdout, self._stderr = outputs
        self._lock = threading.Lock()

    def wait(self) -> tuple[int, str]:
        """Its exit code and the last lines of its error output; those of a script's own error are waited for."""
        code = self.process.wait()
        # Whoever inherited the pipe may hold it open; a death by signal has nothing to say.
        deadline = time.monotonic() + (1.0 if 0 < code < 126 else 0.05)
        for stream in (self._stderr, self._stdout):
            stream.drained.wait(max(0.0, deadline - time.monotonic()))
        return code, "\n".join(self._stderr.tail)

    def signal(self, number: int) -> None:
        """Signal the whole session; no error if it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class WorkerProcesses:
    """All of them, by number."""

    def __init__(self, shell: Shell, outputs: Outputs, run_dir: Path) -> None:
        self._shell, self._outputs = shell, outputs
        self._record = run_dir / RECORD_FILE
        self._running: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()

    def start(
        self,
        number: int,
        host: Host,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[Stream, Stream],
        ended: Callable[[int, int, str], None],
    ) -> None:
        """Start a command; `ended(number, code, message)` is called from a thread when it has ended. Raises OSError."""
        process = self._shell.start(host, command, environment)
        with self._record.open("a", encoding="ascii") as record:
            record.write(f"{process.pid} {start_time(process.pid)}\n")
        worker = WorkerProcess(process, streams)
        with self._lock:
            self._running[number] = worker
        for pipe, stream in zip((process.stdout, process.stderr), streams, strict=True):
            assert pipe is not None
            self._outputs.add(pipe, stream)
        threading.Thread(target=self._reap, args=(number, worker, ended), name=f"worker {number}", daemon=True).start()

    def end(self, number: int, *, at_once: bool) -> None:
        """Ask it to end, and kill it if it has not after TERM_SECONDS; or kill it now. Returns at once."""
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
        """End all; returns when none is left, within TERM_SECONDS and a second."""
        for number, wait_seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 1.0)):
            with self._lock:
                running = list(self._running.values())
            for worker in running:
                worker.signal(number)
            deadline = time.monotonic() + wait_seconds
            while self._running and time.monotonic() < deadline:
                time.sleep(0.01)
        for worker in list(self._running.values()):
            logger.error("process %d does not end", worker.process.pid)
        self._record.unlink(missing_ok=True)

    def _reap(self, number: int, worker: WorkerProcess, ended: Callable[[int, int, str], None]) -> None:
        code, message = worker.wait()
        # What the command left in its session goes with it, so that nothing of it reaches into the next world.
        worker.signal(signal.SIGKILL)
        with self._lock:
            self._running.pop(number, None)
        ended(number, code, message)


def end_leftovers(run_dir: Path) -> int:
    """End the processes that an earlier launcher of this RUN_DIR has left; how many there were.

    A process is known by its id and its start time, so that one that got the same id later is left alone.
    """
    try:
        lines = (run_dir / RECORD_FILE).read_text(encoding="ascii").split("\n")
    except FileNotFoundError:
        return 0
    pairs = [line.split() for line in lines if line.count(" ") == 1]
    left = [int(pid) for pid, started in pairs if start_time(int(pid)) == started]
    for number, wait_seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        deadline = time.monotonic() + wait_seconds
        while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < deadline:
            time.sleep(0.01)
    (run_dir / RECORD_FILE).unlink(missing_ok=True)
    return len(left)


def start_time(pid: int) -> str:
    """When a process was started, in clock ticks since boot (field 22 of /proc/PID/stat); "" if it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[19]
