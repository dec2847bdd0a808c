"""Requests as a service got them, and the servers that they call for: the same in each arm.

The trace tells how many requests came in each second. Within one they are spread evenly. Of an hour's quarters the one
is played whose number of requests is in the middle, of two such the one with fewer.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Final

from benchmarks.replay.trace_window import AskedGpus

WINDOW_SECONDS: Final = 900
LOOK_SECONDS: Final = 15.0
"""Between two looks of an HPA (`--horizontal-pod-autoscaler-sync-period`)."""
CALM_SECONDS: Final = 60.0
"""For so long an HPA must have wanted fewer replicas. Its default is 300: a quarter of an hour would see one shrink."""


def recorded_arrivals(trace: Path, service: str) -> list[float]:
    """Seconds from the window's begin at which requests came. Raises OSError, and ValueError for another trace."""
    with trace.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("service") == service]
    if not rows:
        raise ValueError(f"{trace} has no requests of the service {service!r}")
    counts = Counter({int(row["t_s"]): int(row["requests"]) for row in rows})
    return list(_spread(_middle_window(counts)))


def _middle_window(counts: Counter[int]) -> Counter[int]:
    windows: dict[int, Counter[int]] = {}
    for second, requests in counts.items():
        windows.setdefault(second // WINDOW_SECONDS, Counter())[second % WINDOW_SECONDS] = requests
    by_size = sorted(windows.values(), key=Counter.total)
    return by_size[(len(by_size) - 1) // 2]


def _spread(counts: Counter[int]) -> Iterator[float]:
    for second in sorted(counts):
        yield from (second + (number + 0.5) / counts[second] for number in range(counts[second]))


def called_for(arrivals: Sequence[float], seconds: float, *, each: float, most: int) -> list[AskedGpus]:
    """The servers that an HPA would call for, of one GPU each, from a second on; at least one.

    `each`: requests a second for which a server is asked for. It is computed once and replayed: an HPA that looks anew
    in each arm, each 15 s, would hide what is to be seen.
    """
    wished: list[int] = []
    found: list[AskedGpus] = []
    looks = range(int(seconds // LOOK_SECONDS) + 1)
    for look in looks:
        begin, end = (look - 1) * LOOK_SECONDS, look * LOOK_SECONDS
        rate = sum(begin <= one < end for one in arrivals) / LOOK_SECONDS
        wished.append(min(most, max(1, ceil(rate / each))))
        servers = max(wished[-1 - int(CALM_SECONDS // LOOK_SECONDS) :])
        if end < seconds and (not found or found[-1].gpus != servers):
            found.append(AskedGpus(second=end, gpus=servers))
    return found


def at(schedule: Iterable[AskedGpus], second: float) -> int:
    """The servers that are called for at a second."""
    return next(ask.gpus for ask in reversed(tuple(schedule)) if ask.second <= second)


def rises(schedule: Sequence[AskedGpus]) -> int:
    """How many servers are added in all, beyond the first ones."""
    return sum(max(0, later.gpus - before.gpus) for before, later in pairwise(schedule))
