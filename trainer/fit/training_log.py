"""What rank 0 tells people while training goes on: TensorBoard and a line of progress now and then."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

logger = logging.getLogger(__name__)

PROGRESS_SECONDS: Final = 10.0


class TensorBoardWriter:
    """TensorBoard's writer, opened by whoever is rank 0 when there is something to write.

    A new rank 0 opens a file of its own and purges what the one before wrote past its own step: those steps are
    trained again.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add scalars at `step`. Does nothing without a folder, or without the `tensorboard` package."""
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
        """End the file; the next `write` begins another."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class ProgressLog:
    """Samples a second and a line of log, at most once in PROGRESS_SECONDS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._samples = 0

    def due(self) -> bool:
        """Whether it is time to say something: what costs something to find out need not be found out otherwise."""
        return self._clock() - self._since >= PROGRESS_SECONDS

    def count(self, samples: int) -> None:
        """Count samples of all workers."""
        self._samples += samples

    def tell(self, *, epoch: int, epochs: int, step: int, size: int, values: Mapping[str, float]) -> dict[str, float]:
        """Log a line; gives `values` with the speed since the line before."""
        now = self._clock()
        seconds = now - self._since
        told = {**values, "samples_per_second": self._samples / seconds if seconds > 0 else 0.0, "world_size": size}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in told.items())
        logger.info("epoch %d of %d, step %d: %s", epoch + 1, epochs, step, shown)
        self._since, self._samples = now, 0
        return told
