"""What happens when: actions in the order of their seconds, those of one second in the order in which they were set."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

TimedAction = Callable[[float], None]
"""Gets the second at which it happens."""


class EventQueue:
    """The simulation's clock. It holds no time of its own: whoever takes an action is at its second."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int]] = []
        self._actions: dict[int, TimedAction] = {}
        self._order = count()

    def __len__(self) -> int:
        """What is kept: twice as much as is to come, at most."""
        return len(self._events)

    def at(self, second: float, action: TimedAction) -> int:
        """Set `action` for `second`, and return its number. What is set for infinity never happens."""
        number = next(self._order)
        if second != float("inf"):
            heappush(self._events, (second, number))
            self._actions[number] = action
        return number

    def cancel(self, number: int) -> None:
        """An action is not to happen. Nothing if it has happened."""
        self._actions.pop(number, None)
        if len(self._events) > 2 * len(self._actions):
            self._events = [event for event in self._events if event[1] in self._actions]
            heapify(self._events)

    def next_second(self) -> float:
        """Infinity if nothing is to come."""
        while self._events and self._events[0][1] not in self._actions:
            heappop(self._events)
        return self._events[0][0] if self._events else float("inf")

    def pop(self) -> TimedAction:
        """The action of `next_second`. Raises IndexError if there is none."""
        return self._actions.pop(heappop(self._events)[1])
