"""When which worker is probed.

A probe costs about 0.1 ms, so a large job probes each worker less often, and one that missed again after a second. One
that has never answered starts: it is asked ten times a second, because every resize waits for it.
"""

import heapq
import math
from typing import Final

INTERVAL_SECONDS: Final = 1.0
PROBES_PER_SECOND: Final = 100.0
"""At most: about 1% of a core. A larger job of n workers is probed once in n / 100 seconds."""
RETRY_SECONDS: Final = 1.0
"""After a miss."""
STARTING_SECONDS: Final = 0.1
"""After a miss of a worker that has never answered. With more than ten of them they share PROBES_PER_SECOND, too."""
BATCH_SECONDS: Final = 0.25
"""Probes due within this time of the first start with it, to save turns of the loop. At most a quarter of the shortest
interval, or a worker that has just been asked would be due again."""


class ProbeSchedule:
    """When to probe which worker next. All times are of one clock that does not jump."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval = interval_seconds
        self._due: list[tuple[float, str]] = []
        """A heap."""
        self.uids: set[str] = set()
        """Those that wait for their time."""

    @property
    def earliest(self) -> float:
        """When the next probe is due; infinite if none is."""
        return self._due[0][0] if self._due else math.inf

    def add(self, uid: str, when: float) -> None:
        self.uids.add(uid)
        heapq.heappush(self._due, (when, uid))

    def pop(self) -> str:
        """Take the worker that is due first."""
        _, uid = heapq.heappop(self._due)
        self.uids.discard(uid)
        return uid

    def present_interval(self, workers: int) -> float:
        """Between two probes of one that answers, with so many workers."""
        return max(self._interval, workers / PROBES_PER_SECOND)

    def retry_interval(self) -> float:
        """After a miss of one that has answered before."""
        return min(RETRY_SECONDS, self._interval)

    def starting_interval(self, starting: int) -> float:
        """After a miss of one that has never answered, as so many have not."""
        return min(RETRY_SECONDS, self._interval, max(STARTING_SECONDS, starting / PROBES_PER_SECOND))

    def batch_seconds(self, starting: int) -> float:
        return min(BATCH_SECONDS, (self.starting_interval(starting) if starting else self._interval) / 4)
