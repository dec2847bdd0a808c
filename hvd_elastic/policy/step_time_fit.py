"""A fitted step time with what is to be thought of it: its errors, and the doubt about any size.

The doubts about sizes that were not seen are measured: benchmarks/step_time.py takes 63 series of one job's steps with
a constant batch from the tables of Pollux and Sia (30 models on clusters), fits some sizes, and predicts the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Final

from hvd_elastic.policy.step_time import StepObservation, StepTime, fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """How far a prediction may be off, as parts of what will be measured."""

    half: float
    """Half of such predictions were off by less."""
    most: float
    """Nine of ten were."""


BETWEEN: Final = Doubt(half=0.06, most=0.26)
"""Of a size between two that were seen."""
BEYOND: Final = (
    Doubt(half=0.13, most=0.47),
    Doubt(half=0.24, most=0.63),
    Doubt(half=0.35, most=0.72),
    Doubt(half=0.66, most=0.85),
)
"""Up to twice, four, eight times the largest size that was seen, and beyond; and so below the smallest."""
BEYOND_ONE: Final = (
    Doubt(half=0.27, most=0.60),
    Doubt(half=0.48, most=0.76),
    Doubt(half=0.76, most=0.92),
    Doubt(half=0.89, most=0.98),
)
"""The same where only one size was seen: ideal scaling is assumed."""


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies; the nearest of them. Raises IndexError without a value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]


@dataclass(frozen=True, kw_only=True)
class StepTimeFit:
    """Observations, and the step time that was fitted to them. Raises ValueError without an observation."""

    observations: tuple[StepObservation, ...]

    @cached_property
    def step_time(self) -> StepTime:
        """The fit to all observations."""
        return fitted(self.observations)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of workers that were seen, ascending."""
        return tuple(sorted({one.workers for one in self.observations}))

    @cached_property
    def residuals(self) -> tuple[float, ...]:
        """Relative error of the fit at each observation."""
        return tuple(_error(self.step_time, one) for one in self.observations)

    @cached_property
    def held_out_errors(self) -> tuple[float, ...]:
        """Relative error at each observation, of a fit to all other sizes; empty where only one size was seen."""
        if len(self.sizes) < 2:
            return ()
        return tuple(error for size in self.sizes for error in self._errors_without(size))

    @property
    def error(self) -> Doubt | None:
        """Of sizes that the fit does not know, as far as this job shows it; None where only one size was seen."""
        if not self.held_out_errors:
            return None
        return Doubt(half=median(self.held_out_errors), most=quantile(self.held_out_errors, 0.9))

    def seconds(self, *, workers: int, nodes: int, samples: float) -> float:
        """Of one step with `samples` of each worker."""
        return self.step_time.seconds(workers=workers, nodes=nodes, samples=samples)

    def doubt(self, *, workers: int, nodes: int, samples: float) -> Doubt:
        """About `seconds` there. At least what this job's own sizes show, if it was not measured itself.

        Several nodes count as one doubling more where only one node was seen, and the other way round.
        """
        near = [one for one in self.observations if (one.workers, one.nodes > 1) == (workers, nodes > 1)]
        if any(_distance(samples, [one.samples]) <= _SAME for one in near):
            return Doubt(half=median(self.residuals), most=quantile(self.residuals, 0.9))
        rule = _beyond(self._doublings(workers, nodes, samples), BEYOND if len(self.sizes) > 1 else BEYOND_ONE)
        own = self.error or rule
        return Doubt(half=max(rule.half, own.half), most=max(rule.most, own.most))

    def _doublings(self, workers: int, nodes: int, samples: float) -> float:
        """From what was seen."""
        far = max(_distance(workers, self.sizes), _distance(samples, [one.samples for one in self.observations]))
        kinds = {one.nodes > 1 for one in self.observations if one.workers > 1}
        is_new = workers > 1 and (nodes > 1) not in kinds
        return max(far, 0.0) + (is_new and bool(kinds))

    def _errors_without(self, size: int) -> list[float]:
        rest = fitted([one for one in self.observations if one.workers != size])
        return [_error(rest, one) for one in self.observations if one.workers == size]


_SAME: Final = math.log2(1.05)
"""A constant batch is not divided evenly: shares within 5% are of one batch."""


def _error(step_time: StepTime, one: StepObservation) -> float:
    predicted = step_time.seconds(workers=one.workers, nodes=one.nodes, samples=one.samples)
    return abs(predicted / one.seconds - 1)


def _distance(value: float, seen: Sequence[float]) -> float:
    """How many doublings the value is beyond those that were seen; 0 between them."""
    return max(0.0, math.log2(value / max(seen)), math.log2(min(seen) / value))


def _beyond(doublings: float, rule: Sequence[Doubt]) -> Doubt:
    return BETWEEN if doublings <= _SAME else rule[min(len(rule), math.ceil(doublings - 1e-9)) - 1]
