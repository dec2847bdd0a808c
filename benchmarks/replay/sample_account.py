"""Whether each epoch of a job used each sample once: the account of what its ranks wrote.

The lines are those of testbed/cluster/scripts/step_log.py.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleAccount:
    """Of the epochs that have ended."""

    epochs: int
    wrong: int
    """Samples of an epoch that were not used, or more than once, over all epochs."""


@dataclass(slots=True, kw_only=True)
class _Step:
    """One that stands as of now."""

    size: int
    epoch: int
    samples: dict[int, list[int]]
    """By rank."""
    time: float = 0.0
    """When the last rank told of it."""


def sample_account(events: Iterable[Mapping[str, Any]], samples: int, *, since: float = 0.0) -> SampleAccount:
    """What the kept steps have used of a data set.

    Args:
        events: of the job, in the order of time.
        samples: of the data set, numbered from 0.
        since: Unix seconds: epochs that were over before do not count.

    An epoch has ended if a step of a later one was kept: that one's own end may not have come.
    """
    used: defaultdict[int, Counter[int]] = defaultdict(Counter)
    over: dict[int, float] = {}
    for step in _kept(event for event in events if event["event"] == "samples").values():
        used[step.epoch].update(sample for of_rank in step.samples.values() for sample in of_rank)
        over[step.epoch] = max(over.get(step.epoch, 0.0), step.time)
    ended = [epoch for epoch in used if epoch < max(used) and over[epoch] >= since]
    wrong = sum(used[epoch][sample] != 1 for epoch in ended for sample in range(samples))
    return SampleAccount(epochs=len(ended), wrong=wrong)


def _kept(events: Iterable[Mapping[str, Any]]) -> dict[int, _Step]:
    """The steps that nothing has undone, by number.

    All ranks tell of a step before any of them tells of the next. So a number that is not above the last one, of a rank
    that has written it already or in a world of another size, says that training went back to what is before it.
    """
    kept: dict[int, _Step] = {}
    last = 0
    for event in events:
        number, rank, size = event["step"], event["rank"], event["size"]
        same = kept.get(number)
        if number < last or (same is not None and (rank in same.samples or size != same.size)):
            for later in range(number, last + 1):
                kept.pop(later, None)
        step = kept.setdefault(number, _Step(size=size, epoch=event["epoch"], samples={}))
        step.samples[rank], step.time = event["samples"], event.get("time", 0.0)
        last = number
    return kept
