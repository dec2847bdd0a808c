"""What happens when: actions in the order of their seconds, those of one second in the order in which they were set."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

TimedAction = Callable[[float], None]
"""Gets the second at which it happens."""


class EventQueue:
    """The simulation's clock. It holds no time of its own: whoever takes an action is at its second."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, TimedAction]] = []
        self._order = count()

    def at(self, second: float, action: TimedAction) -> None:
        """Set `action` for `second`. What is set for infinity never happens."""
        if second != float("inf"):
            heappush(self._events, (second, next(self._order), action))

    def next_second(self) -> float:
        """Infinity if nothing is to come."""
        return self._events[0][0] if self._events else float("inf")

    def pop(self) -> TimedAction:
        """The next action. Raises IndexError if there is none."""
        return heappop(self._events)[2]
