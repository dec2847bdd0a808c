"""Requests that have not shown the job's token: bounded, so that strangers leave room for everyone else."""

import asyncio
from typing import Final

from hvd_elastic.system import descriptors

LEAST_ROOM: Final = 512
"""More than any world's workers are at a time between their connection and the end of their request's head."""
FOR_EACH: Final = 4
"""Times the size of the world: stock workers show no token, and each waits with one request."""


class UnprovenRequests:
    """The tasks that serve them. Beyond the bound the oldest gives way. One thread."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[object], None] = {}
        """The oldest first."""
        self.form(0)

    def form(self, size: int) -> None:
        """A world of so many processes forms. Half of this process's descriptors are never theirs."""
        self._most = max(1, min(max(LEAST_ROOM, FOR_EACH * size), descriptors.limit() // 2))

    def begin(self) -> None:
        """The present task serves one."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        while len(self._tasks) > self._most:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()

    def end(self) -> None:
        """What the present task serves has shown the token, or is answered."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.pop(task, None)


def accepted_at_once() -> int:
    """Connections to accept before those are looked at that were accepted: each has a descriptor."""
    return max(1, min(64, descriptors.limit() // 16))
