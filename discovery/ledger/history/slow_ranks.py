"""Which rank takes longer than the others for its own part of a step: blocks of steps in, a judgement out.

A rank is slow in a window if all of this holds. Two windows are looked at: a short one for a rank that is far behind,
and a long one for a rank that is a little behind.

- Its median is that much longer than the median of the others, and so are most of its blocks, each compared with what
  the others did at that time. So neither one step nor one stall of a loader makes a rank slow, and steps that are long
  for all make nobody slow.
- That is no chance: where steps differ much, as those of sentences do, it takes more of them to be sure.
- It is further from the others than they are from each other, and more than a third of the ranks are not as slow: where
  half of the machines are of an older kind, it is no news that one of them is slower.
- It costs something: a part of the step, and more than a scheduler takes away now and then.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from hvd_elastic.discovery.ledger.entries import Slowness
from hvd_elastic.discovery.ledger.rank_pace import PacedBlock

Series = Mapping[int, Sequence[PacedBlock]]
"""By rank, its blocks of the present world, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceWindow:
    """So many last blocks of each rank, and what makes a rank slow in them."""

    blocks: int
    times: float
    """The rank's median, by that of the others."""
    each: float
    """The same of one block, in _MOST of them."""
    ends: float
    """Below this the rank is slow no more."""
    ends_blocks: int
    """In so many last blocks."""


SHORT: Final = PaceWindow(blocks=9, times=1.35, each=1.25, ends=1.15, ends_blocks=8)
LONG: Final = PaceWindow(blocks=60, times=1.12, each=1.06, ends=1.05, ends_blocks=24)
MOST_BLOCKS: Final = LONG.blocks
"""That anybody looks at."""
_MOST: Final = 0.8
_DEVIATIONS: Final = 4.0
_SURE: Final = 5.0
"""Standard errors that a rank is off, for a machine that is compared each five seconds for days."""
_MEDIAN: Final = 1.2533
"""Standard error of a median, by that of the mean: sqrt(pi/2), of a normal distribution."""
_NORMAL: Final = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""
_SHARE: Final = 0.05
"""Of the step, that it loses by a slow rank."""
_LEAST_SECONDS: Final = 0.002
_FEW: Final = 3
"""One in so many ranks may be slow; where more are, it is a kind of machine."""
_MOST_OTHERS: Final = 32
"""Ranks with which each block is compared, of a large world: a sample tells their median."""
_MOST_NOISES: Final = 8
"""Ranks from which it is learned how much blocks differ by chance."""
_LEAST_OWN: Final = 1e-6
"""Seconds, so that nothing is divided by zero."""
_MOST_TIMES: Final = 1000.0
"""That are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """A judgement."""

    rank: int
    times: float
    """How many times as long as the others it takes."""
    since: float
    """Unix seconds from which on that is so, as far as the window reaches."""
    slowness: Slowness
    window: PaceWindow


def find_slow(series: Series, size: int) -> tuple[SlowRank, ...]:
    """The ranks that are slow in one of the windows, in their order; of both windows the short one counts.

    Nothing is said before most ranks of the world (`size`) have as many blocks as the window.
    """
    found: dict[int, SlowRank] = {}
    for window in (LONG, SHORT):
        recent = {rank: blocks[-window.blocks :] for rank, blocks in series.items() if len(blocks) >= window.blocks}
        if len(recent) >= max(2, size // 2 + 1):
            found |= {slow.rank: slow for slow in _slow(series, recent, window)}
    return tuple(found[rank] for rank in sorted(found))


def still_slow(slow: SlowRank, series: Series) -> bool:
    """Whether a rank that was found slow is so by its last blocks."""
    last = {rank: blocks[-slow.window.ends_blocks :] for rank, blocks in series.items() if blocks}
    if slow.rank not in last or len(last) == 1:
        return True
    medians = {rank: _own(blocks) for rank, blocks in last.items()}
    others = [each for rank, each in medians.items() if rank != slow.rank]
    return medians[slow.rank] >= slow.window.ends * median(others)


def _slow(series: Series, recent: Series, window: PaceWindow) -> list[SlowRank]:
    medians = {rank: _own(blocks) for rank, blocks in recent.items()}
    middle = median(medians.values())
    behind = [rank for rank, own in medians.items() if own > window.times * middle or len(medians) == 2]
    found = [slow for rank in behind if (slow := _judge(rank, recent, medians, window)) is not None]
    if not found:
        return []
    least = _SURE * _MEDIAN * _noise({rank: series[rank] for rank in recent}) / math.sqrt(window.blocks)
    return [slow for slow in found if math.log(slow.times) >= least]


def _judge(rank: int, recent: Series, medians: Mapping[int, float], window: PaceWindow) -> SlowRank | None:
    blocks, own = recent[rank], medians[rank]
    others = [each for other, each in medians.items() if other != rank]
    usual = median(others)
    spread = _NORMAL * median(abs(each - usual) for each in others)
    step = median(block.step_seconds for block in blocks)
    least = max(_DEVIATIONS * spread, _SHARE * step, _LEAST_SECONDS)
    if own < window.times * usual or own - usual < least:
        return None
    alike = 1 + sum(each > math.sqrt(own * usual) for each in others)
    if alike > max(1, len(medians) // _FEW):
        return None
    late = [block.own > window.each * beside for block, beside in zip(blocks, _beside(rank, recent), strict=True)]
    if sum(late) < _MOST * len(late):
        return None
    first = blocks[late.index(True)]
    return SlowRank(
        rank=rank,
        times=min(own / max(usual, _LEAST_OWN), _MOST_TIMES),
        since=first.unix - first.seconds,
        slowness=_slowness(rank, recent),
        window=window,
    )


def _beside(rank: int, recent: Series) -> list[float]:
    """What the others took at the time of each of a rank's blocks."""
    others = [blocks for other, blocks in recent.items() if other != rank]
    others = others[:: len(others) // _MOST_OTHERS + 1]
    ends = [[block.unix for block in blocks] for blocks in others]
    return [
        median(blocks[_nearest(known, block.unix)].own for blocks, known in zip(others, ends, strict=True))
        for block in recent[rank]
    ]


def _noise(series: Series) -> float:
    """By how much a block is off by chance: the standard deviation of its logarithm, each beside the others' block.

    Learned from one block to the next: a rank that has just become slow is not off by chance.
    """
    known = list(series)
    offs: list[float] = []
    for rank in known[:: len(known) // _MOST_NOISES + 1]:
        logs = [
            math.log(max(block.own, _LEAST_OWN) / max(beside, _LEAST_OWN))
            for block, beside in zip(series[rank], _beside(rank, series), strict=True)
        ]
        offs += [abs(later - each) for each, later in pairwise(logs)]
    return _NORMAL * median(offs) / math.sqrt(2)


def _nearest(times: Sequence[float], time: float) -> int:
    after = min(bisect_left(times, time), len(times) - 1)
    return after - 1 if after and time - times[after - 1] < times[after] - time else after


def _slowness(rank: int, recent: Series) -> Slowness:
    """In what it takes longer: the larger part of what it takes more than the others."""
    if any(block.loading is None for block in recent[rank]):
        return Slowness.UNKNOWN
    mine = recent[rank]
    others = [blocks for other, blocks in recent.items() if other != rank]
    computing = _computing(mine) - median(map(_computing, others))
    loading = _loading(mine) - median(map(_loading, others))
    return Slowness.LOADING if loading > computing else Slowness.COMPUTING


def _own(blocks: Sequence[PacedBlock]) -> float:
    return median(block.own for block in blocks)


def _computing(blocks: Sequence[PacedBlock]) -> float:
    return median(block.computing for block in blocks)


def _loading(blocks: Sequence[PacedBlock]) -> float:
    return median(block.loading or 0.0 for block in blocks)
