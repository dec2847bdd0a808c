"""How far a log has been read, so that a new request goes on without a line lost or repeated.

The API server takes `sinceTime` in whole seconds (`Time.MarshalQueryParameter` in apimachinery), so a request that goes
on brings lines again. They come in the file's order: the first that was not read yet stands behind the last that was.
Only the container's present file is served; after a rotation the kubelet shows nothing of the files before it.
"""

from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

_OVERLAP_SECONDS: Final = 1
"""stdout and stderr are stamped by two threads of the runtime, so a line may be behind one of the next second."""


class Arrival(StrEnum):
    """What a line is to the reader."""

    NEW = "new"
    KNOWN = "known"
    AFTER_GAP = "after-gap"
    """New, and the lines that were read before it are gone: the file was rotated, so others may be missing."""


class LogPosition:
    """The lines of the last seconds, of one container. Whoever reads goes through `resume` before each request."""

    def __init__(self, *, begins_late: bool = False) -> None:
        """`begins_late`: the first request leaves out what stands before, so that a later one may bring it."""
        self._begins_late = begins_late
        self._first: int | None = None
        """The second of the first line."""
        self._recent: dict[int, Counter[bytes]] = {}
        """The lines of each second that a new request would bring again."""
        self._last = b""
        self._awaited: Counter[bytes] = Counter()
        """Lines that the present request brings again."""
        self.has_joined = True
        """Whether the present request has come to where the one before it ended."""

    @property
    def since(self) -> str | None:
        """`sinceTime` of the next request: RFC 3339, whole seconds. None if nothing was read yet."""
        if not self._recent:
            return None
        first = max(self._recent) - _OVERLAP_SECONDS
        return datetime.fromtimestamp(first, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def resume(self) -> None:
        """A new request begins, with `since`."""
        self._awaited = Counter()
        for lines in self._recent.values():
            self._awaited.update(lines)
        self.has_joined = not self._last

    def take(self, line: bytes, second: int) -> Arrival:
        """Record a line, stamp included, that the present request has brought."""
        if self._awaited[line] > 0:
            self._awaited[line] -= 1
            self.has_joined = self.has_joined or line == self._last
            return Arrival.KNOWN
        if self._is_from_before(second):
            return Arrival.KNOWN
        # A line that the cut tore comes again, whole.
        is_gap = not self.has_joined and not line.startswith(self._last)
        self.has_joined = True
        self._record(line, second)
        return Arrival.AFTER_GAP if is_gap else Arrival.NEW

    def _is_from_before(self, second: int) -> bool:
        return self._begins_late and not self.has_joined and self._first is not None and second <= self._first

    def _record(self, line: bytes, second: int) -> None:
        self._last = line
        self._first = second if self._first is None else self._first
        if second not in self._recent:
            newest = max([second, *self._recent])
            self._recent = {one: lines for one, lines in self._recent.items() if one >= newest - _OVERLAP_SECONDS}
        self._recent.setdefault(second, Counter())[line] += 1
