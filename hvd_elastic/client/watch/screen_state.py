"""What a person has chosen in the live view, and what each key makes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class Screen(StrEnum):
    """What is shown."""

    LIST = "list"
    JOB = "job"
    LOG = "log"


SPANS: Final = (300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, 7 * 24 * 3600.0)
"""Seconds that the chart may show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenState:
    """A value; `press` gives the next."""

    screen: Screen
    has_list: bool = False
    """Whether one can go back from a job to the list."""
    sort: int = 0
    """Which of the screen's orders."""
    words: str = ""
    """Rows that do not contain them are left out."""
    is_typing: bool = False
    """Whether keys go into `words`."""
    row: int = 0
    """The chosen row."""
    span: int = 2
    """Which of SPANS; -1: since the job began."""
    job: tuple[str, str] | None = None
    """Namespace and name of the job that is shown."""
    pod: str = ""
    """The worker whose log is shown."""
    ended: bool = False


def press(state: ScreenState, key: str, *, rows: Sequence[object]) -> ScreenState:
    """What a key does. `rows`: what the screen's rows stand for: (namespace, name) of jobs, or names of pods."""
    if state.is_typing:
        return _typed(state, key)
    action = _ACTIONS.get(key)
    return action(state, rows) if action else state


def _typed(state: ScreenState, key: str) -> ScreenState:
    match key:
        case "enter":
            return replace(state, is_typing=False)
        case "escape":
            return replace(state, is_typing=False, words="")
        case "backspace":
            return replace(state, words=state.words[:-1])
        case _:
            return replace(state, words=state.words + key) if len(key) == 1 else state


def _opened(state: ScreenState, rows: Sequence[object]) -> ScreenState:
    if not 0 <= state.row < len(rows):
        return state
    chosen = rows[state.row]
    if state.screen is Screen.LIST:
        assert isinstance(chosen, tuple)
        return replace(state, screen=Screen.JOB, job=chosen, row=0, sort=0, words="")
    if state.screen is Screen.JOB:
        return replace(state, screen=Screen.LOG, pod=str(chosen))
    return state


def _back(state: ScreenState) -> ScreenState:
    if state.screen is Screen.LOG:
        return replace(state, screen=Screen.JOB, pod="")
    if state.screen is Screen.JOB and state.has_list:
        return replace(state, screen=Screen.LIST, job=None, row=0, sort=0, words="")
    return replace(state, words="")


def _wider(state: ScreenState) -> ScreenState:
    return replace(state, span=-1 if state.span in {-1, len(SPANS) - 1} else state.span + 1)


def _narrower(state: ScreenState) -> ScreenState:
    return replace(state, span=len(SPANS) - 1 if state.span < 0 else max(0, state.span - 1))


def _down(state: ScreenState, rows: Sequence[object]) -> ScreenState:
    return replace(state, row=max(0, min(len(rows) - 1, state.row + 1)))


def _up(state: ScreenState, rows: Sequence[object]) -> ScreenState:
    return replace(state, row=max(0, min(len(rows), state.row) - 1))


_ACTIONS: Final[dict[str, Callable[[ScreenState, Sequence[object]], ScreenState]]] = {
    "q": lambda state, _: replace(state, ended=True),
    "up": _up,
    "k": _up,
    "down": _down,
    "j": _down,
    "s": lambda state, _: replace(state, sort=state.sort + 1),
    "/": lambda state, _: replace(state, is_typing=True, words="", row=0),
    "+": lambda state, _: _narrower(state),
    "-": lambda state, _: _wider(state),
    "enter": _opened,
    "l": _opened,
    "escape": lambda state, _: _back(state),
    "b": lambda state, _: _back(state),
}
