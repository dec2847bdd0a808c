"""GPUs divided among claims so that they are worth most.

With concave claims the marginal gains in order, largest first, are the optimum, in O(G log J). Where a claim is not
concave, or workers differ in size, that order is the optimum only if it comes out even; else dynamic programming over
claims and GPUs finds it (both: Voda scheduler, `ffdl_optimizer.go`). A table that would be too large is not made: the
order of gains then loses one step of one claim at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from math import gcd
from typing import Final

MOST_WORK: Final = 2_000_000
"""Cells of the table times choices: about a quarter of a second."""
_DIGITS: Final = 9
"""Gains that differ after these digits are equal: sums of floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaim:
    """What one job could do with GPUs."""

    gpus: int
    """Of one worker; at least 1."""
    least: int
    most: int
    """Workers."""
    worth: tuple[float, ...]
    """By the number of workers, from 0 to `most`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Some workers more, which are worth most per GPU when they come together."""

    name: str
    before: int
    after: int
    gpus: int
    gain: float
    """Of one GPU."""


def divide(claims: Mapping[str, GpuClaim], gpus: int) -> dict[str, int]:
    """Workers by name, `least` to `most` each, worth most together. GPUs that nobody gains from stay idle.

    The GPUs must suffice for everybody's `least`. Equal gains are given in turns.
    """
    spare = gpus - sum(claim.least * claim.gpus for claim in claims.values())
    divided, is_best = _by_gain(claims, spare)
    if is_best or _work(claims, spare) > MOST_WORK:
        return divided
    return _by_table(claims, spare)


def _by_gain(claims: Mapping[str, GpuClaim], spare: int) -> tuple[dict[str, int], bool]:
    """The steps in order of gain as long as they fit, and whether nothing better exists."""
    divided = {name: claim.least for name, claim in claims.items()}
    sizes = {claim.gpus for claim in claims.values()}
    steps = (step for name, claim in claims.items() for step in _steps(name, claim))
    is_best = True
    for step in sorted(steps, key=lambda step: (-round(step.gain, _DIGITS), step.after * step.gpus, step.name)):
        if divided[step.name] != step.before:
            continue
        after = _reached(claims[step.name], step, spare // step.gpus)
        is_best = is_best and (after == step.after or (len(sizes) == 1 and spare < step.gpus))
        divided[step.name] = after
        spare -= (after - step.before) * step.gpus
    return divided, is_best


def _reached(claim: GpuClaim, step: _Step, more: int) -> int:
    """The end of a step, or the best size on the way if only so many workers more fit."""
    if step.after - step.before <= more:
        return step.after
    return max(range(step.before, step.before + more + 1), key=lambda workers: claim.worth[workers])


def _steps(name: str, claim: GpuClaim) -> Iterator[_Step]:
    """The upper concave hull of a claim's worth, from `least` on, as long as there is a gain."""
    hull: list[int] = []
    for workers in range(claim.least, claim.most + 1):
        while len(hull) > 1 and _slope(claim, hull[-1], workers) > _slope(claim, hull[-2], hull[-1]):
            hull.pop()
        hull.append(workers)
    for before, after in pairwise(hull):
        gain = _slope(claim, before, after) / claim.gpus
        if round(gain, _DIGITS) <= 0:
            return
        yield _Step(name=name, before=before, after=after, gpus=claim.gpus, gain=gain)


def _slope(claim: GpuClaim, before: int, after: int) -> float:
    return round((claim.worth[after] - claim.worth[before]) / (after - before), _DIGITS)


def _work(claims: Mapping[str, GpuClaim], spare: int) -> int:
    return spare // _unit(claims) * sum(claim.most - claim.least + 1 for claim in claims.values())


def _unit(claims: Mapping[str, GpuClaim]) -> int:
    return gcd(*(claim.gpus for claim in claims.values())) or 1


def _by_table(claims: Mapping[str, GpuClaim], spare: int) -> dict[str, int]:
    """`P[j][k] = max over g of P[j-1][k-g] + x_j(g)`: k and g in units that all workers are multiples of."""
    unit = _unit(claims)
    rows = [[0.0] * (spare // unit + 1)]
    for claim in claims.values():
        rows.append(_next_row(rows[-1], claim, claim.gpus // unit))
    divided, left = {}, spare // unit
    for (name, claim), before, after in reversed(list(zip(claims.items(), rows, rows[1:], strict=False))):
        more = _chosen(before, after[left], claim, claim.gpus // unit, left)
        divided[name] = claim.least + more
        left -= more * (claim.gpus // unit)
    return divided


def _next_row(row: Sequence[float], claim: GpuClaim, size: int) -> list[float]:
    best = [worth + claim.worth[claim.least] for worth in row]
    for more in range(1, min(claim.most - claim.least, (len(row) - 1) // size) + 1):
        worth = claim.worth[claim.least + more]
        shifted = chain(repeat(float("-inf"), more * size), row)
        best = [max(one, other + worth) for one, other in zip(best, shifted, strict=False)]
    return best


def _chosen(row: Sequence[float], worth: float, claim: GpuClaim, size: int, left: int) -> int:
    """The fewest workers above `least` with which the table's entry was reached."""
    choices = range(min(claim.most - claim.least, left // size) + 1)
    return next(more for more in choices if row[left - more * size] + claim.worth[claim.least + more] >= worth)
