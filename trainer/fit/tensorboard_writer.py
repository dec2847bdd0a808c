"""TensorBoard events of a `Trainer`, written by rank 0."""

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)


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
            writer.flush()  # by itself it writes every two minutes, which a process that is killed would lose

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
