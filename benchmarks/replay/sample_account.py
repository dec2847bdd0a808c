"""Whether each epoch of a job used each sample once: the account of what its ranks wrote.

The lines are those of tests/cluster/scripts/step_log.py.
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


def sample_account(events: Iterable[Mapping[str, Any]], samples: int) -> SampleAccount:
    """What the kept steps have used of a data set of so many samples. `events` are in the order of time.

    An epoch has ended if a step of a later one was kept: that one's own end may not have come.
    """
    used: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for step in _kept(event for event in events if event["event"] == "samples").values():
        used[step.epoch].update(sample for of_rank in step.samples.values() for sample in of_rank)
    ended = [epoch for epoch in used if epoch < max(used)]
    wrong = sum(used[epoch][sample] != 1 for epoch in ended for sample in range(samples))
    return SampleAccount(epochs=len(ended), wrong=wrong)


def _kept(events: Iterable[Mapping[str, Any]]) -> dict[int, _Step]:
    """The steps that nothing has undone, by number.

    All ranks write a step before any of them writes the next. So a number that is not above the last one, of a rank
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
        step.samples[rank] = event["samples"]
        last = number
    return kept
