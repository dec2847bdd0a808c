"""Single keys from a terminal, as they are pressed."""

import os
import select
import sys
import termios
import tty
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Final, Self

_SEQUENCES: Final = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down"}
_NAMES: Final = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace"}


class Keyboard(AbstractContextManager["Keyboard"]):
    """The terminal's keys while the context lasts. Ctrl-C stays what it is."""

    def __init__(self, descriptor: int | None = None) -> None:
        """`descriptor`: of the terminal; by default standard input's."""
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    @property
    def descriptor(self) -> int:
        """Readable when a key was pressed."""
        return self._descriptor

    def pressed(self) -> list[str]:
        """The keys that were pressed: characters, or `up`, `down`, `enter`, `escape`, `backspace`. Never blocks.

        Raises EOFError if the terminal is gone: from then on it is always readable, and has nothing.
        """
        if not select.select([self._descriptor], [], [], 0)[0]:
            return []
        if not (text := os.read(self._descriptor, 1024)):
            raise EOFError("the terminal is gone")
        return keys(text.decode(errors="ignore"))


def keys(text: str) -> list[str]:
    """The keys in what a terminal sends. A sequence that is not known is left out."""
    found = []
    while text:
        if text.startswith(("\x1b[", "\x1bO")):
            found += [_SEQUENCES[text[:3]]] if text[:3] in _SEQUENCES else []
            text = text[3:]
            continue
        found.append(_NAMES.get(text[0], text[0]))
        text = text[1:]
    return [key for key in found if len(key) > 1 or key.isprintable()]
