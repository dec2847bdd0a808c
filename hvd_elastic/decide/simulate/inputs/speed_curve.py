"""How fast a job is with each number of workers: as measured, or as assumed.

The time of a sample with K workers was measured, or lies on the line between its neighbours that were. Beyond the
largest measured size each worker more costs what the last ones have cost.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.policy.job_demand import Speeds

DEFAULT_SAMPLES: Final = 100.0
DEFAULT_LOSS: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """Samples per second over workers."""

    source: str
    """What it is from, for the report."""
    points: Mapping[int, float]
    """Samples per second of the sizes that are known, at least one."""
    per_step: bool = False
    """Whether the points are steps per second, of the job's global batch."""
    measured: int = 0
    """The largest size that was measured; 0: none was."""
    loss: float = DEFAULT_LOSS
    """What each worker more adds to the time of a sample, as a share of one worker's, if only one size is known."""

    def speeds(self, most: int, samples_per_step: int) -> Speeds:
        """Samples per second for 0 to `most` workers."""
        scale = samples_per_step if self.per_step else 1
        return Speeds((0.0, *(self._rate(workers) * scale for workers in range(1, most + 1))))

    def extrapolates(self, most: int) -> bool:
        """Whether `most` workers are more than were measured."""
        return 0 < self.measured < most

    def _rate(self, workers: int) -> float:
        """From the seconds of one worker's share: `workers / rate`, which is constant for ideal scaling."""
        sizes = sorted(self.points)
        if len(sizes) == 1:
            one = self.points[sizes[0]] * (1 + self.loss * (sizes[0] - 1)) / sizes[0]
            return workers * one / (1 + self.loss * (workers - 1))
        place = min(max(bisect_left(sizes, workers), 1), len(sizes) - 1)
        low, high = sizes[place - 1], sizes[place]
        before, after = low / self.points[low], high / self.points[high]
        slope = (after - before) / (high - low)
        if workers > high:
            return workers / (after + max(0.0, slope) * (workers - high))
        if workers < low:
            return workers / before
        return workers / (before + slope * (workers - low))


def assumed_curve(samples: float = DEFAULT_SAMPLES, loss: float = DEFAULT_LOSS) -> SpeedCurve:
    """K workers do `K*s / (1 + loss*(K-1))` samples per second."""
    source = f"assumed: {samples:g} samples/s a worker, each worker more adds {loss:.1%} to a sample's time"
    return SpeedCurve(source=source, points={1: samples}, loss=loss)
