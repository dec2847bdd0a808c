"""What a person sees while the demo runs: one live line of state on a terminal, plain lines elsewhere."""

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
    """One look at a run."""

    run: str
    seconds: float
    """Since its first step."""
    capacity: int
    """Hosts that training may have."""
    inference: int
    """Hosts that inference has."""
    size: int
    """World size: training processes that step together."""
    step: int
    loss: float | None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes a plain line worth printing again."""
        return self.run, self.capacity, self.inference, self.size


PLAIN_SECONDS = 5.0
"""Without a terminal a line is printed on each change, and at most this long after the last one."""


class Display(AbstractContextManager["Display"]):
    """Shows states; use as a context manager."""

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
        """A line that stays."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def show(self, state: DisplayState) -> None:
        """Replace the live picture, or print a plain line where something changed."""
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
