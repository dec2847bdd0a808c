"""What people see while the demo runs: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayState:
    """The state of a run at one moment."""

    run: str
    seconds: float
    """Since its first step."""
    capacity: int
    """Hosts that training may use."""
    inference: int
    """Hosts that inference uses."""
    size: int
    """World size: the training processes that step together."""
    step: int
    loss: float | None

    @property
    def key(self) -> tuple[object, ...]:
        """If any of these changes, a new plain line is printed."""
        return self.run, self.capacity, self.inference, self.size


PLAIN_SECONDS = 5.0
"""Without a terminal a line is printed on each change, and at least this often."""


class Display(AbstractContextManager["Display"]):
    """Shows the states of runs. Use it as a context manager."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last: DisplayState | None = None
        self._printed = -PLAIN_SECONDS

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def show(self, state: DisplayState) -> None:
        """Update the live table, or print a plain line if something has changed."""
        if self._live:
            self._live.update(_table(state), refresh=True)
        elif not self._last or state.key != self._last.key or self._clock() - self._printed >= PLAIN_SECONDS:
            self._printed = self._clock()
            self.say(_line(state))
        self._last = state


def _line(state: DisplayState) -> str:
    loss = "-" if state.loss is None else f"{state.loss:.3f}"
    return (
        f"{state.run}: {state.seconds:5.1f} s, capacity {state.capacity}, inference {state.inference}, "
        f"world size {state.size}, step {state.step}, loss {loss}"
    )


def _table(state: DisplayState) -> Table:
    table = Table(title=state.run, title_justify="left", expand=False)
    for name in ("seconds", "hosts", "world size", "step", "loss"):
        table.add_column(name, justify="left" if name == "hosts" else "right")
    total = state.capacity + state.inference
    training = min(state.size, total)
    idle = max(0, state.capacity - training)
    bar = f"[blue]{'■' * training}[/][dim]{'□' * idle}[/][red]{'■' * state.inference}[/]"
    loss = "-" if state.loss is None else f"{state.loss:.3f}"
    legend = f"{bar}  training {state.size}, inference {state.inference} of {total}"
    table.add_row(f"{state.seconds:.1f}", legend, str(state.size), str(state.step), loss)
    return table
