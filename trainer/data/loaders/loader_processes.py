"""The deaths of a DataLoader's processes: where the training process is told of them, and what they mean.

torch (2.15, `torch/utils/data/_utils/signal_handling.py`) raises an error in the handler of SIGCHLD, wherever the main
thread is. One that strikes as `torch.no_grad()` or `torch.autocast()` begins or ends may leave that mode on: what is
trained afterwards is wrong, or fails. Only a wait for a batch has to be interrupted, as the dead process may have
written half of a message. So the error is raised there, or where the next wait begins. A wait in another thread ends
when torch looks at its loader processes, every 5 s.

Children of a fork server, multiprocessing's default from Python 3.14 on, are not this process's: it gets no SIGCHLD of
them, and torch's look (`torch/csrc/DataLoader.cpp`) passes over them in silence. A thread waits for them, and sends
that signal; multiprocessing knows their exit codes.
"""

import functools
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, Final
from weakref import WeakKeyDictionary

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.system.background_threads import start_thread

logger = logging.getLogger(__name__)

_MOST_DEATHS: Final = 3
"""A script with a DataLoader of its own keeps its loader processes. After this many deaths the error is raised."""

_DEATH_REPORT_SECONDS: Final = 5.0
"""If a connection to a loader process breaks because it died, the system knows of the death within this time, however
busy the machine is."""

NO_GUARD: Final = (
    "a process that multiprocessing has started (start method spawn or forkserver) runs the script anew, and "
    "came to hvd.init(). Put all that is not to run there, hvd.init() and elastic.init() too, "
    'below `if __name__ == "__main__":`'
)


class GuardError(HvdElasticError):
    """A loader process has trained, because the script has no main guard."""

    exit_code = Exit.SCRIPT_MISTAKE


def runs_script_anew() -> bool:
    """Whether this is a process of multiprocessing that imports the script to find its own function there."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


class LoaderProcesses:
    """All loader processes of this process."""

    def __init__(self) -> None:
        self.deaths: list[str] = []
        """torch's messages."""
        self._is_waiting = False
        """Whether the main thread waits for a batch."""
        self._of_fork_servers: WeakKeyDictionary[Any, dict[int, BaseProcess]] = WeakKeyDictionary()
        """For each iterator over a loader, by their numbers there."""

    def install(self) -> None:
        """Have deaths told where a batch is waited for."""
        from torch.utils.data import dataloader
        from torch.utils.data._utils import signal_handling

        iterator: Any = dataloader._BaseDataLoaderIter  # StatefulDataLoader's is one, too
        stock_next = iterator.__next__
        if getattr(stock_next, "tells_of_deaths", False):
            return

        @functools.wraps(stock_next)
        def next_batch(batches: Any) -> Any:
            if not batches._num_workers or threading.current_thread() is not threading.main_thread():
                return stock_next(batches)
            self._watch(batches)
            self._is_waiting = True  # before the look: a death behind it is the handler's to tell
            try:
                self._look_for_deaths()
                return stock_next(batches)
            finally:
                self._is_waiting = False

        next_batch.tells_of_deaths = True  # type: ignore[attr-defined]
        iterator.__next__ = next_batch
        signal_handling._error_if_any_worker_fails = self._on_signal  # type: ignore[attr-defined]

    def _on_signal(self) -> None:
        """What torch's handler calls, in the main thread."""
        if not self._is_waiting:
            return
        try:
            self._look_for_deaths()
        except RuntimeError:
            self._is_waiting = False  # the error may strike where the wait was just about to end
            raise

    def is_lost(self, error: Exception) -> bool:
        """Whether a loader process was killed: /dev/shm is full (SIGBUS), or memory is short (SIGKILL).

        A ConnectionError or EOFError may come before torch's report. From the first death on the training process loads
        the data itself: slower, and without shared memory.

        Raises:
            GuardError: it has run the script anew, up to `hvd.init()`.
        """
        text = str(error if isinstance(error, RuntimeError) else self._awaited_report())
        if not text.startswith("DataLoader worker (pid"):
            return False
        if any(each.exitcode == Exit.SCRIPT_MISTAKE for batches in self._of_fork_servers for each in batches._workers):
            raise GuardError(NO_GUARD) from error
        if not self.deaths:
            logger.warning("%s From now on data is loaded in the training process.", text)
        self.deaths.append(text)
        return len(self.deaths) <= _MOST_DEATHS

    def _watch(self, batches: Any) -> None:
        """Watch the processes of a loader that are no children of this process."""
        if batches in self._of_fork_servers:
            return
        processes = {number: each for number, each in enumerate(batches._workers) if not _is_child(each)}
        self._of_fork_servers[batches] = processes
        if processes:
            watched = tuple(processes.values())
            start_thread("loaders", lambda: _signal_deaths(watched), log=logger)

    def _look_for_deaths(self) -> None:
        """Raise torch's RuntimeError for a loader process that was killed or failed, once for each loader."""
        from torch import _C

        _C._error_if_any_worker_fails()
        for batches, processes in tuple(self._of_fork_servers.items()):
            # torch has no use any more for the others: it ends them, or has told of their end.
            used = [each for number, each in processes.items() if batches._workers_status[number]]
            ended = connection.wait([each.sentinel for each in used], timeout=0) if used else []
            for process in used:
                if process.sentinel in ended and process.exitcode:
                    processes.clear()
                    raise RuntimeError(_death_of(process))

    def _awaited_report(self) -> RuntimeError | None:
        """Wait for a death. A batch's memory is fetched from its loader process, and that may fail first."""
        over = time.monotonic() + _DEATH_REPORT_SECONDS
        try:
            while time.monotonic() < over:
                self._look_for_deaths()
                time.sleep(0.01)
        except RuntimeError as error:
            return error
        return None


THIS_PROCESS: Final = LoaderProcesses()
"""torch's iterator and its handler of SIGCHLD are global to the process, so one object is told of all deaths."""


def _is_child(process: BaseProcess) -> bool:
    assert process.pid is not None
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _signal_deaths(processes: Sequence[BaseProcess]) -> None:
    """Send the main thread a SIGCHLD for each process that ends, as the system does for a child."""
    main = threading.main_thread().ident
    assert main is not None
    left = list(processes)
    while left:
        running = [each for each in left if _is_running(each)]
        if running == left:
            connection.wait([each.sentinel for each in running])
        else:
            left = running
            signal.pthread_kill(main, signal.SIGCHLD)


def _is_running(process: BaseProcess) -> bool:
    """False also for one whose loader has closed it."""
    try:
        return not connection.wait([process.sentinel], timeout=0)
    except (OSError, ValueError):
        return False


def _death_of(process: BaseProcess) -> str:
    """What torch says of a child."""
    code = process.exitcode or 0
    if code < 0:
        return f"DataLoader worker (pid {process.pid}) is killed by signal: {signal.strsignal(-code)}. "
    return f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {code}. "
