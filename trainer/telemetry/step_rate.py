"""How fast a process trains, as a moving rate that pauses do not spoil."""

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 30.0
"""Long enough that the rate does not jump with each slow step, short enough to show a change within a minute."""


class StepRate:
    """Steps per second over the last WINDOW_SECONDS since training went on.

    All that happens between two steps counts, evaluation and waits for data too: it is how fast the job comes on. The
    pause of a resize does not, nor does the first step after it, which includes it.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        """Times and steps, the oldest first."""

    @property
    def has_begun(self) -> bool:
        """Whether a step was marked since the last pause."""
        return bool(self._marks)

    def restart(self) -> None:
        """Forget what was before: training has paused, or goes on with another step."""
        self._marks.clear()

    def mark(self, now: float, step: int) -> None:
        """Note that `step` is done at `now`, in seconds of a clock that does not jump."""
        self._marks.append((now, step))
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW_SECONDS:
            self._marks.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate at the last mark; None before two of them."""
        if not self._marks:
            return None
        (since, first), (until, last) = self._marks[0], self._marks[-1]
        return (last - first) / (until - since) if until > since else None
