"""When autoscalers look: every ten seconds, less those looks at which they could see nothing new."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Final

from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay

SCAN_SECONDS: Final = 10.0
"""Cluster Autoscaler's `--scan-interval`, and `hvd-elastic autoscale --period`."""

Look = Callable[[float], float]
"""Gets the second, and returns that at which it has to look again though nothing happens; infinity: not at all."""


class LookSchedule:
    """Looks at the first multiple of SCAN_SECONDS after something has happened: a quiet cluster costs nothing."""

    def __init__(self, cluster: ClusterDay, looks: Sequence[Look]) -> None:
        self._cluster, self._looks = cluster, looks
        self._due, self._event = float("inf"), -1

    def begin(self) -> None:
        """Look as long as the day lasts."""
        self._cluster.on_change.append(self._happened)

    def _happened(self, now: float) -> None:
        if now < self._due:
            self._set((now // SCAN_SECONDS + 1) * SCAN_SECONDS)
            return
        self._due = float("inf")
        again = min(look(now) for look in self._looks)
        if again < float("inf"):
            self._set(ceil(again / SCAN_SECONDS) * SCAN_SECONDS)

    def _set(self, second: float) -> None:
        if second < self._due:
            self._cluster.cancel(self._event)
            self._due, self._event = second, self._cluster.at(second, _pass)


def _pass(_now: float) -> None:
    """There is a moment then, after which the looks are called."""
