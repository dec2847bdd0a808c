"""The deaths of a DataLoader's processes: where the training process is told of them, and what they mean.

torch (2.15, `torch/utils/data/_utils/signal_handling.py`) raises an error in the handler of SIGCHLD, wherever the main
thread is. One that strikes as `torch.no_grad()` or `torch.autocast()` begins or ends may leave that mode on: what is
trained afterwards is wrong, or fails. Only a wait for a batch has to be interrupted, as the dead process may have
written half of a message. So the error is raised there, or where the next wait begins. A wait in another thread ends
when torch looks at its loader processes, every 5 s.
"""

import functools
import logging
import threading
import time
from typing import Any, Final

logger = logging.getLogger(__name__)

_MOST_DEATHS: Final = 3
"""A script with a DataLoader of its own keeps its loader processes. After this many deaths the error is raised."""

_DEATH_REPORT_SECONDS: Final = 1.0
"""If a connection to a loader process breaks because it died, the system knows of the death within this time."""


class LoaderProcesses:
    """All loader processes of this process."""

    def __init__(self) -> None:
        self.deaths: list[str] = []
        """torch's messages."""
        self._is_waiting = False
        """Whether the main thread waits for a batch."""

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
            self._is_waiting = True  # before the look: a death behind it is the handler's to tell
            try:
                _look_for_deaths()
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
            _look_for_deaths()
        except RuntimeError:
            self._is_waiting = False  # the error may strike where the wait was just about to end
            raise

    def is_lost(self, error: Exception) -> bool:
        """Whether a loader process was killed: /dev/shm is full (SIGBUS), or memory is short (SIGKILL).

        A ConnectionError or EOFError may come before torch's report. From the first death on the training process loads
        the data itself: slower, and without shared memory.
        """
        text = str(error if isinstance(error, RuntimeError) else _awaited_report())
        if not text.startswith("DataLoader worker (pid"):
            return False
        if not self.deaths:
            logger.warning("%s From now on data is loaded in the training process.", text)
        self.deaths.append(text)
        return len(self.deaths) <= _MOST_DEATHS


THIS_PROCESS: Final = LoaderProcesses()


def _look_for_deaths() -> None:
    """Raise torch's RuntimeError for a loader process that was killed or failed, once for each loader."""
    from torch import _C

    _C._error_if_any_worker_fails()


def _awaited_report() -> RuntimeError | None:
    """Wait for a death. A batch's memory is fetched from its loader process, and that may fail first."""
    over = time.monotonic() + _DEATH_REPORT_SECONDS
    try:
        while time.monotonic() < over:
            _look_for_deaths()
            time.sleep(0.01)
    except RuntimeError as error:
        return error
    return None
