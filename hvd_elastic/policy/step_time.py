"""How long a step takes with any number of workers, fitted to what was measured with some.

    T(K, m) = base + per_sample * m                         computing m samples, on each worker
              + exchange * (K-1)/K + per_worker * K         all-reduce among K > 1 workers

The last two have values of their own for workers on one node and on several, where at least two sizes of both were
seen; else both have the same. A ring all-reduce moves `2(K-1)/K` of the gradients over each link, whatever K is, and
pays a latency for each worker (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 69, 2009). Fitted by
non-negative least squares on relative errors. Seconds, if nothing else is said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.policy.nonnegative_least_squares import nonnegative_least_squares

_APART: Final = 2
"""Sizes that must be seen on one node and on several before their all-reduces are told apart."""
_RELUCTANCE: Final = 0.5
"""How much the fit avoids time that grows with the number of workers, as far as the data do not ask for it: as much as
one size more that would have this relative error for a mean step that consists of nothing else. Without it, three sizes
tell `exchange` from `per_worker` by their noise, and predictions beyond them are off twice as far
(benchmarks/step_time.py, constant batch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepObservation:
    """What was measured with one number of workers. Raises ValueError for what cannot be."""

    workers: int
    nodes: int
    """On which they were."""
    samples: float
    """Of each worker, in a step."""
    seconds: float
    """Of a step."""

    def __post_init__(self) -> None:
        if not (1 <= self.nodes <= self.workers and 0 < self.samples < _HUGE and 0 < self.seconds < _HUGE):
            raise ValueError(f"not an observation of a step: {self}")


_HUGE: Final = 1e12
"""Infinity and what is not a number are no measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceTime:
    """What a step takes longer because workers exchange gradients."""

    exchange: float = 0.0
    """Of which `(K-1)/K` are paid."""
    per_worker: float = 0.0

    def seconds(self, workers: int) -> float:
        """Of one step; 0 for one worker."""
        return self.exchange * (workers - 1) / workers + self.per_worker * workers if workers > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The formula above with its values. None of them is negative."""

    base: float = 0.0
    per_sample: float = 0.0
    one_node: AllReduceTime = AllReduceTime()
    several_nodes: AllReduceTime = AllReduceTime()

    def seconds(self, *, workers: int, nodes: int, samples: float) -> float:
        """Of one step with `samples` of each worker."""
        exchange = self.one_node if nodes == 1 else self.several_nodes
        return self.base + self.per_sample * samples + exchange.seconds(workers)


def fitted(observations: Sequence[StepObservation]) -> StepTime:
    """The formula's values that make the relative errors least.

    What the observations do not determine is as simple as they allow: of equally good solutions, the one with the
    fewest values above zero, time for samples before all other time. With one size, that is ideal scaling. Computing
    always takes time: where all of it would be the all-reduce's, there is none.

    Raises ValueError without an observation.
    """
    if not observations:
        raise ValueError("a step time needs at least one observation")
    apart = _are_apart(observations)
    rows = [[factor / one.seconds for factor in _factors(one, apart=apart)] for one in observations]
    targets = [1.0] * len(rows)
    rows += [_reluctant(rows, column, len({one.workers for one in observations})) for column in _growing(rows[0])]
    values = nonnegative_least_squares(rows, targets + [0.0] * (len(rows) - len(targets)))
    if not any(values[:2]):
        values = (*nonnegative_least_squares([row[:2] for row in rows[: len(targets)]], targets), *[0.0] * 4)
    per_sample, base, *exchanges = values
    one_node = AllReduceTime(exchange=exchanges[0], per_worker=exchanges[1])
    several = AllReduceTime(exchange=exchanges[2], per_worker=exchanges[3]) if apart else one_node
    return StepTime(base=base, per_sample=per_sample, one_node=one_node, several_nodes=several)


def _growing(row: Sequence[float]) -> range:
    """Columns of time that grows with the number of workers."""
    return range(3, len(row), 2)


def _reluctant(rows: Sequence[Sequence[float]], column: int, sizes: int) -> list[float]:
    """A row that is met best with nothing in the column, and weighs as much as the rows of one size."""
    weight = _RELUCTANCE * (len(rows) / sizes) ** 0.5
    mean = sum(row[column] for row in rows) / len(rows)
    return [weight * mean if at == column else 0.0 for at in range(len(rows[0]))]


def _are_apart(observations: Sequence[StepObservation]) -> bool:
    near = {one.workers for one in observations if one.workers > 1 and one.nodes == 1}
    far = {one.workers for one in observations if one.nodes > 1}
    return len(near) >= _APART and len(far) >= _APART


def _factors(one: StepObservation, *, apart: bool) -> tuple[float, ...]:
    workers = one.workers
    exchange = ((workers - 1) / workers, float(workers) if workers > 1 else 0.0)
    if not apart:
        return (one.samples, 1.0, *exchange)
    return (
        one.samples,
        1.0,
        *(exchange if one.nodes == 1 else (0.0, 0.0)),
        *(exchange if one.nodes > 1 else (0.0, 0.0)),
    )
