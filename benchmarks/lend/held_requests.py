"""Requests that wait for a server, as an activator holds them: a Service would refuse them while no pod is Ready."""

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class HeldRequests:
    """The longest wait goes first, to the server that answers the fewest. A server takes `slots` requests at once."""

    slots: int = 1
    _held: deque[tuple[int, float]] = field(default_factory=deque)
    """Number and arrival, the earliest first."""
    _answers: dict[str, int] = field(default_factory=dict)
    """How many each server has, of those that may get more."""

    def __len__(self) -> int:
        return len(self._held)

    def arrive(self, request: int, now: float) -> None:
        """Hold a request until a server has a place for it."""
        self._held.append((request, now))

    def ready(self, server: str) -> None:
        """A server may have requests from now on."""
        self._answers.setdefault(server, 0)

    def gone(self, server: str) -> None:
        """A server gets no more requests; those that it has it answers."""
        self._answers.pop(server, None)

    def answered(self, server: str) -> None:
        """A server has a place again."""
        if server in self._answers:
            self._answers[server] -= 1

    def next(self) -> tuple[int, str] | None:
        """Request and server; None: nothing is held, or no server has a place."""
        free = [server for server, has in self._answers.items() if has < self.slots]
        if not self._held or not free:
            return None
        server = min(free, key=lambda one: self._answers[one])
        self._answers[server] += 1
        return self._held.popleft()[0], server

    def give_up(self, before: float) -> list[int]:
        """Requests that have waited since `before`: who asked them has gone."""
        found: list[int] = []
        while self._held and self._held[0][1] <= before:
            found.append(self._held.popleft()[0])
        return found
