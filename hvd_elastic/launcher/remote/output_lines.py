"""A process's output as lines, with progress bars that redraw themselves by carriage returns."""

import re
from typing import Final

_LINE_LIMIT_BYTES: Final = 1 << 20
_BLANK: Final = re.compile(rb"(?:\s|\x1b\[[0-9;?]*[A-Za-z])*")
"""What erases a bar: spaces, or a terminal's control sequences."""


class OutputLines:
    """Cuts bytes into lines. Of what carriage returns overwrite, only the last is kept, as a terminal shows it."""

    def __init__(self) -> None:
        self._rest = b""
        """What follows the last newline."""
        self._shown = b""
        """The bar that `take_bar` returned last."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, and return the lines that are whole now, without their newlines."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > _LINE_LIMIT_BYTES:
            lines.append(rest)
            rest = b""
        before, carriage_return, now = rest.rpartition(b"\r")
        # What a bar overwrote is dropped. An erased bar stays until the next one is drawn.
        self._rest = (_visible(before) if _is_blank(now) else b"") + carriage_return + now
        return self._whole(lines)

    def end(self) -> list[bytes]:
        """Return the line that was not ended, if there is one."""
        rest, self._rest = self._rest, b""
        return self._whole([rest] if rest else [])

    @property
    def has_new_bar(self) -> bool:
        """Whether a bar is drawn that `take_bar` has not returned yet."""
        bar = self._bar()
        return bar not in (b"", self._shown)

    def take_bar(self) -> bytes:
        """Return the bar as it is drawn now. If it stays as it is, it is returned no second time, nor by `feed`."""
        self._shown = self._bar()
        return self._shown

    def _bar(self) -> bytes:
        return _visible(self._rest) if b"\r" in self._rest else b""

    def _whole(self, lines: list[bytes]) -> list[bytes]:
        texts = list(map(_visible, lines))
        if lines:
            if self._shown and texts[0] == self._shown:
                del texts[0]
            self._shown = b""
        return texts


def _visible(line: bytes) -> bytes:
    """What a terminal shows of the line, but for the rest of a longer text that a shorter one overwrote."""
    if b"\r" not in line:
        return line
    drawn = (piece for piece in reversed(line.split(b"\r")) if not _is_blank(piece))
    return next(drawn, b"")


def _is_blank(text: bytes) -> bool:
    return _BLANK.fullmatch(text) is not None
