"""A script's own SIGTERM handler, called only where it can run.

Between two worlds there is no rank: `hvd.rank()` in a handler raises. A signal that comes there is handed to the script
in its next world, or once training is over.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from hvd_elastic.trainer.elastic import training_mark
from hvd_elastic.trainer.elastic.training_mark import TrainingMarkWriter

Handler = Callable[[int, FrameType | None], object]


class ScriptSignals:
    """Stands before the handler that the script has set."""

    def __init__(self, mark: TrainingMarkWriter = training_mark.THIS_PROCESS) -> None:
        self._mark = mark
        self._handler: Handler | None = None
        self._trains = self._is_pending = False

    @contextlib.contextmanager
    def over_worlds(self) -> Iterator[None]:
        """The process goes from world to world within the block. After it the script's handler is its own again."""
        try:
            yield
        finally:
            if self._handler is not None and signal.getsignal(signal.SIGTERM) == self._receive:
                signal.signal(signal.SIGTERM, self._handler)
        if self._is_pending:
            self._hand_over(None)

    def _install(self) -> None:
        """Put this before the script's handler, if it has one. Only the main thread may, and receives signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler) and handler != self._receive:
            self._handler = handler
            signal.signal(signal.SIGTERM, self._receive)

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """The training function runs within the block, in a world. What came before it is handed over first."""
        self._install()
        self._trains = True
        try:
            if self._is_pending:
                self._hand_over(None)
            yield
        finally:
            self._trains = False

    def _receive(self, _number: int, frame: FrameType | None) -> None:
        self._mark.note_order()
        if self._trains:
            self._hand_over(frame)
        else:
            self._is_pending = True

    def _hand_over(self, frame: FrameType | None) -> None:
        self._is_pending = False
        if self._handler is not None:
            self._handler(signal.SIGTERM, frame)


THIS_PROCESS: Final = ScriptSignals()
"""A process has one handler of a signal."""
