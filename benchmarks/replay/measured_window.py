"""What happened in a window, wherever it was replayed, and the figures that follow from it."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.replay.trace_window import SIZE, AskedGpus, given
from benchmarks.report import measurements

PAUSE: Final = 3.0
"""A step that takes so many times the median of its size is a pause."""
CHANGE_SECONDS: Final = 30.0
"""After which a change has cost what it costs: over an hour steps drift by more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What happened in one window with one system."""

    window: str
    system: str
    seconds: float
    """How long it took."""
    began: float = 0.0
    """Unix seconds."""
    asks: list[dict[str, Any]]
    """Fields of AskedGpus."""
    steps: list[dict[str, Any]]
    """Each time a step was done: `time`, `size` and `step`."""
    waits: list[float]
    """Seconds for which inference waited for each GPU, sorted. On a cluster of the pods that came to run."""
    epochs: int = 0
    """That have ended, from the job's start to the window's end."""
    samples_wrong: int | None = None
    """In these epochs, samples that were not used, or more than once. None: nobody counted."""

    def keep(self, folder: Path) -> None:
        """Write it into a file, for a report."""
        measurements.keep(folder, f"{self.window}-{self.system}-{self.seconds:.0f}s", self)


def goodput(one: Measured) -> float:
    """The share of the GPU-time which the window leaves to training that kept steps have used."""
    return useful(one.steps, unhindered(one.steps)) / given([AskedGpus(**ask) for ask in one.asks], one.seconds)


def untaken(one: Measured) -> float:
    """The share of the GPU-time which the window leaves to training that no world had: workers were on their way."""
    asks = [AskedGpus(**ask) for ask in one.asks]
    times = [float(step["time"]) - one.began for step in one.steps]
    sizes = [int(step["size"]) for step in one.steps] or [0]
    moments = sorted({0.0, one.seconds, *times, *(ask.second for ask in asks)})
    idle = 0.0
    for begin, end in pairwise(moments):
        left = SIZE - next((ask.gpus for ask in reversed(asks) if ask.second <= begin), 0)
        # A world forms before its first step.
        size = sizes[min(bisect_left(times, end), len(sizes) - 1)]
        idle += max(0, left - size) * (end - begin)
    return idle / given(asks, one.seconds)


def lost_by_change(one: Measured) -> tuple[list[float], list[float]]:
    """GPU-seconds that training lost of what was left to it, by each GPU that was taken and each that was given.

    From the change on for CHANGE_SECONDS, but not beyond the next change or the window's end. GPUs that go or come at
    once share what is lost.
    """
    seconds = unhindered(one.steps)
    last = {step["step"]: step for step in one.steps}
    takes, gives = list[float](), list[float]()
    asks = [AskedGpus(second=0.0, gpus=0), *(AskedGpus(**ask) for ask in one.asks)]
    ends = [*(ask.second for ask in asks[1:]), one.seconds]
    for number, (before, ask) in enumerate(pairwise(asks), 1):
        length = min(ends[number] - ask.second, CHANGE_SECONDS)
        begin, end = one.began + ask.second, one.began + ask.second + length
        used = sum(
            step["size"] * seconds.get(step["size"], 0.0) for step in last.values() if begin <= step["time"] < end
        )
        gpus = abs(ask.gpus - before.gpus)
        lost = ((SIZE - ask.gpus) * length - used) / gpus
        (takes if ask.gpus > before.gpus else gives).extend([lost] * gpus)
    return takes, gives


def repeated(one: Measured) -> int:
    """Steps that were done again, each time counted."""
    return len(one.steps) - len({step["step"] for step in one.steps})


def pauses(one: Measured) -> list[float]:
    """Seconds of each time without a step that is a pause, from the beginning of the window to its end, sorted."""
    times = [one.began, *(float(step["time"]) for step in one.steps), one.began + one.seconds]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    longest = PAUSE * median(gaps)
    return sorted(gap for gap in gaps if gap > longest)


def unhindered(steps: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """The mean seconds of a step by size, of steps that no pause has stretched: a pause must not count as training."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    for first, second in pairwise(steps):
        if first["size"] == second["size"]:
            times[int(first["size"])].append(second["time"] - first["time"])
    longest = {size: PAUSE * median(found) for size, found in times.items()}
    return {size: fmean(one for one in found if one <= longest[size]) for size, found in times.items()}


def useful(steps: Sequence[Mapping[str, Any]], seconds: Mapping[int, float]) -> float:
    """GPU-seconds of steps that were kept: each counts once, with the seconds of a step of its size."""
    last = {step["step"]: int(step["size"]) for step in steps}
    return sum(size * seconds.get(size, 0.0) for size in last.values())
