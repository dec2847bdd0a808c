"""How a `Trainer` shows how far it is: a bar where stderr is a terminal, elsewhere a line now and then."""

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.telemetry.console import say

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger(__name__)

LINE_SECONDS: Final = 10.0
"""Shortest time between two lines."""
BAR_SECONDS: Final = 0.2
"""Shortest time between two changes of the bar: each reads the loss from the device."""


class ProgressDisplay:
    """When something was last shown on rank 0, and the samples since. By itself it shows nothing."""

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since, self._samples = clock(), 0

    def due(self) -> bool:
        """Whether something may be shown again. If not, the caller need not compute what costs time, as the loss."""
        return self._clock() - self._since >= self._seconds

    def count(self, samples: int) -> None:
        self._samples += samples

    def show(self, *, where: str, part: float | None, size: int, values: Mapping[str, float]) -> None:
        """Show progress.

        Args:
            where: `epoch 3 of 20, step 1234`.
            part: of the epoch, from 0 to 1; None if that is not known.
            size: number of workers.
            values: what is shown besides, by name. They are read from the device only here.
        """

    def close(self) -> None:
        """Show nothing any more until `show` is called again."""

    def _words(self, values: Mapping[str, float], size: int) -> str:
        """Return the values as text, with the samples per second since the last call."""
        now = self._clock()
        seconds = now - self._since
        rate = {"samples_per_second": self._samples / seconds} if self._samples and seconds > 0 else {}
        self._since, self._samples = now, 0
        return ", ".join(f"{name} {value:.4g}" for name, value in {**values, **rate, "world_size": size}.items())


class ProgressLines(ProgressDisplay):
    """A line at most once in LINE_SECONDS: a log record, or a line on stderr where the script logs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(LINE_SECONDS, clock)

    def show(self, *, where: str, part: float | None, size: int, values: Mapping[str, float]) -> None:
        say(logger, f"{where}: {self._words(values, size)}")


class ProgressBar(ProgressDisplay):
    """A bar of the present epoch. What is printed or logged to the terminal meanwhile goes above it."""

    def __init__(self, console: "Console", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(BAR_SECONDS, clock)
        self._console = console
        self._bar: Any = None

    def show(self, *, where: str, part: float | None, size: int, values: Mapping[str, float]) -> None:
        if self._bar is None:
            self._bar = self._started()
        total = None if part is None else 1.0
        self._bar.update(0, description=where, completed=part or 0.0, total=total, values=self._words(values, size))

    def _started(self) -> Any:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[values]}"),
        )
        bar = Progress(*columns, console=self._console)
        bar.add_task("", total=None, values="")
        bar.start()
        return bar

    def close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()


def progress_display(*, enabled: bool) -> ProgressDisplay:
    """Return the display for this process's stderr."""
    if not enabled:
        return ProgressDisplay()
    if not sys.stderr.isatty():
        return ProgressLines()
    from rich.console import Console

    return ProgressBar(Console(stderr=True))
