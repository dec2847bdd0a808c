"""How fast a job is with each number of workers, from what it has reported at the sizes that it had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.policy.job_demand import Speeds
from hvd_elastic.policy.step_time import StepObservation, fitted

MOST_SIZES: Final = 32
"""Sizes that are remembered; those heard least often are forgotten first."""
_MOST_WEIGHT: Final = 50
"""Reports that the mean remembers: noise averages out, and a job that changes is followed all the same."""
_SLOWEST, _FASTEST = 1e-6, 1e12
_SERIAL: Final = 0.02
"""The part of a step that more workers do not shorten, as long as nobody has seen two sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSpeeds:
    """What one job has reported."""

    means: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    """By the number of workers: mean speed, and how often it was heard."""

    @classmethod
    def noted(cls, speeds: Mapping[str, tuple[float, int]]) -> "ObservedSpeeds":
        """As a note tells them, without what cannot be one."""
        known = ((int(size), mean, min(count, _MOST_WEIGHT)) for size, (mean, count) in speeds.items())
        means = {size: (mean, count) for size, mean, count in known if size and count > 0 and _is_speed(mean)}
        return cls(means=dict(sorted(means.items())[:MOST_SIZES]))

    def heard(self, workers: int, speed: float) -> "ObservedSpeeds":
        """With one more report. A speed that cannot be one says nothing."""
        if workers < 1 or not _is_speed(speed):
            return self
        mean, count = self.means.get(workers, (0.0, 0))
        count = min(count + 1, _MOST_WEIGHT)
        means = {**self.means, workers: (mean + (speed - mean) / count, count)}
        kept = sorted(means, key=lambda size: (size != workers, -means[size][1], size))[:MOST_SIZES]
        return ObservedSpeeds(means={size: means[size] for size in sorted(kept)})

    def speeds(self, most: int) -> Speeds:
        """With 0 to `most` workers, by the step time that fits what was heard (`policy/step_time.py`).

        With fewer than two sizes heard, 2% of a step count as serial: jobs of which nothing is known then share
        equally.
        """
        step = fitted(self._observations() if len(self.means) > 1 else self._assumed())
        times = (step.seconds(workers=size, nodes=1, samples=1.0 / size) for size in range(1, most + 1))
        return Speeds((0.0, *(1.0 / seconds for seconds in times)))

    def _observations(self) -> list[StepObservation]:
        """A report is a batch (or a step) that the workers divide; on how many nodes they were is not heard."""
        return [_observed(size, 1.0 / mean) for size, (mean, _) in self.means.items()]

    def _assumed(self) -> list[StepObservation]:
        size, mean = next(((size, mean) for size, (mean, _) in self.means.items()), (1, 1.0))
        one = 1.0 / (mean * _amdahl(size))
        return [_observed(workers, one * _amdahl(workers)) for workers in (1, 2)]


def _is_speed(speed: float) -> bool:
    return _SLOWEST < speed < _FASTEST


def _observed(workers: int, seconds: float) -> StepObservation:
    return StepObservation(workers=workers, nodes=1, samples=1.0 / workers, seconds=seconds)


def _amdahl(workers: int) -> float:
    """Part of one worker's time that a step takes."""
    return _SERIAL + (1 - _SERIAL) / workers
