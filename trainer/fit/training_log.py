"""What rank 0 shows during training: TensorBoard scalars and progress lines in the log."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

logger = logging.getLogger(__name__)

PROGRESS_SECONDS: Final = 10.0
"""Shortest time between two progress lines."""


class TensorBoardWriter:
    """Writes TensorBoard scalars; opened on rank 0 at the first write.

    A new rank 0 opens a new file and purges what the former rank 0 wrote beyond the present step: those steps are
    trained again.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add scalars at `step`. Does nothing without a folder or without the `tensorboard` package."""
        writer = self._opened(step)
        if writer is not None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)

    def _opened(self, step: int) -> Any:
        if self._writer is None and self._folder:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                logger.warning("no TensorBoard events in %s: install tensorboard", self._folder)
                self._folder = None
                return None
            self._writer = SummaryWriter(self._folder, purge_step=step)
        return self._writer

    def close(self) -> None:
        """Close the file. The next `write` opens a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class ProgressLog:
    """Logs a progress line with the samples per second, at most once in PROGRESS_SECONDS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._samples = 0

    def due(self) -> bool:
        """Whether the next line is due. If not, the caller need not compute values that cost time, such as the loss."""
        return self._clock() - self._since >= PROGRESS_SECONDS

    def count(self, samples: int) -> None:
        """Add to the number of samples, over all workers."""
        self._samples += samples

    def write(self, *, epoch: int, epochs: int, step: int, size: int, values: Mapping[str, float]) -> dict[str, float]:
        """Log a line. Returns `values` with the samples per second since the previous line, and the world size."""
        now = self._clock()
        seconds = now - self._since
        shown = {**values, "samples_per_second": self._samples / seconds if seconds > 0 else 0.0, "world_size": size}
        text = ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
        logger.info("epoch %d of %d, step %d: %s", epoch + 1, epochs, step, text)
        self._since, self._samples = now, 0
        return shown
