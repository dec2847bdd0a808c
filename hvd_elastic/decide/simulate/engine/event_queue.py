"""What happens when: actions in the order of their seconds, those of one second in the order in which they were set."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

TimedAction = Callable[[float], None]
"""Gets the second at which it happens."""

_NEVER: Final = float("inf")


class EventQueue:
    """The simulation's clock. It holds no time of its own: whoever takes an action is at its second."""

    def __init__(self, known: Iterable[tuple[float, TimedAction]] = ()) -> None:
        """`known`: what happens in any case, in its order, read as it happens. It comes first in its second."""
        self._known = iter(known)
        self._next_known = next(self._known, None)
        self._events: list[tuple[float, int]] = []
        self._actions: dict[int, TimedAction] = {}
        self._order = count()

    def __len__(self) -> int:
        """Of what was set: twice as much as is to come, at most."""
        return len(self._events)

    def at(self, second: float, action: TimedAction) -> int:
        """Set `action` for `second`, and return its number. What is set for infinity never happens."""
        number = next(self._order)
        if second != _NEVER:
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
        second = self._events[0][0] if self._events else _NEVER
        return second if self._next_known is None else min(second, self._next_known[0])

    def pop(self) -> TimedAction:
        """The action of `next_second`. Raises IndexError if there is none."""
        known = self._next_known
        if known is not None and (not self._events or known[0] <= self._events[0][0]):
            self._next_known = next(self._known, None)
            return known[1]
        return self._actions.pop(heappop(self._events)[1])
