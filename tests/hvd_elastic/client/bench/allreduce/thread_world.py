"""A world whose ranks are threads of one process: they meet, and sum what they hold."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hvd_elastic.client.bench.allreduce.allreduce_world import WorldFacts

_Result = TypeVar("_Result")
WAIT_SECONDS = 60


class Meeting:
    """Where ranks exchange values."""

    def __init__(self, ranks: int, *, error: float = 0.0) -> None:
        self.ranks, self.error = ranks, error
        self._values: list[Sequence[float]] = [()] * ranks
        self._barrier = threading.Barrier(ranks)

    def exchange(self, rank: int, values: Sequence[float]) -> list[Sequence[float]]:
        self._values[rank] = values
        self._barrier.wait(WAIT_SECONDS)
        found = list(self._values)
        self._barrier.wait(WAIT_SECONDS)
        return found


class ThreadMessage:
    def __init__(self, world: "ThreadWorld", size: int) -> None:
        self._world, self.numbers = world, [0.0] * (size // 4)

    def fill(self, value: float) -> None:
        self.numbers = [value] * len(self.numbers)

    def allreduce(self) -> None:
        self._world.said.append("allreduce")
        meeting = self._world.meeting
        found = meeting.exchange(self._world.rank, self.numbers)
        self.numbers = [sum(column) for column in zip(*found, strict=True)]
        if self._world.rank == meeting.ranks - 1:
            self.numbers[-1] += meeting.error

    def is_filled_with(self, value: float) -> bool:
        return self.numbers == [value] * len(self.numbers)


class ThreadWorld:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank, self.said = meeting, rank, list[str]()
        self.facts = WorldFacts(library="threads", backend="none", device="cpu", ranks=meeting.ranks, nodes=1)

    def message(self, size: int) -> ThreadMessage:
        self.said.append(f"message {size}")
        return ThreadMessage(self, size)

    def barrier(self) -> None:
        self.said.append("barrier")
        self.meeting.exchange(self.rank, ())

    def largest(self, values: Sequence[float]) -> list[float]:
        return [max(column) for column in zip(*self.meeting.exchange(self.rank, values), strict=True)]


def in_each_rank(meeting: Meeting, work: Callable[[ThreadWorld], _Result]) -> list[_Result]:
    """What `work` returns in each rank."""
    with ThreadPoolExecutor(meeting.ranks) as threads:
        return list(threads.map(work, [ThreadWorld(meeting, rank) for rank in range(meeting.ranks)]))
