"""How fast a job is with each number of workers, from what it has reported at the sizes that it had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.policy.job_demand import Speeds

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

    def heard(self, workers: int, speed: float) -> "ObservedSpeeds":
        """With one more report. A speed that cannot be one says nothing."""
        if workers < 1 or not _SLOWEST < speed < _FASTEST:
            return self
        mean, count = self.means.get(workers, (0.0, 0))
        count = min(count + 1, _MOST_WEIGHT)
        means = {**self.means, workers: (mean + (speed - mean) / count, count)}
        kept = sorted(means, key=lambda size: (size != workers, -means[size][1], size))[:MOST_SIZES]
        return ObservedSpeeds(means={size: means[size] for size in sorted(kept)})

    def speeds(self, most: int) -> Speeds:
        """With 0 to `most` workers, by Amdahl's law: `1/X(K) = a + b/K`, a and b not negative.

        Fitted by least squares on relative errors. With fewer than two sizes seen, 2% of a step count as serial: jobs
        of which nothing is known then share equally.
        """
        serial, divided = self._law()
        return Speeds((0.0, *(1.0 / (serial + divided / workers) for workers in range(1, most + 1))))

    def _law(self) -> tuple[float, float]:
        """Seconds of a sample (a step) that do not shrink, and those that workers divide among them."""
        points = [(size, mean, count) for size, (mean, count) in self.means.items()]
        if not points:
            return _SERIAL, 1.0 - _SERIAL
        if len(points) == 1:
            size, mean, _ = points[0]
            one = 1.0 / (mean * (_SERIAL + (1 - _SERIAL) / size))
            return _SERIAL * one, (1 - _SERIAL) * one
        return _least_squares(points)


def _least_squares(points: list[tuple[int, float, int]]) -> tuple[float, float]:
    """`a*X + b*X/K = 1` for each point, weighted by how often it was heard; 0 for what would be negative."""
    ss = sum(count * mean * mean for _, mean, count in points)
    sd = sum(count * mean * mean / size for size, mean, count in points)
    dd = sum(count * (mean / size) ** 2 for size, mean, count in points)
    s1 = sum(count * mean for _, mean, count in points)
    d1 = sum(count * mean / size for size, mean, count in points)
    scale = ss * dd - sd * sd
    serial, divided = ((s1 * dd - d1 * sd) / scale, (d1 * ss - s1 * sd) / scale) if scale > 0 else (0.0, 0.0)
    if serial < 0 or scale <= 0:
        return 0.0, d1 / dd
    return (serial, divided) if divided >= 0 else (s1 / ss, 0.0)
