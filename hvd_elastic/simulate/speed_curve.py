"""How fast a job is with each number of workers: as measured, or as assumed.

The time of a sample with K workers was measured, or lies on the line between its neighbours that were. Beyond the
largest measured size each worker more costs what the last ones have cost.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.policy.job_demand import Speeds
from hvd_elastic.priorityclasses.problem import Problem

DEFAULT_SAMPLES: Final = 100.0
DEFAULT_LOSS: Final = 0.01
_HEADER: Final = "workers,steps_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """Samples per second over workers."""

    source: str
    """What it is from, for the report."""
    points: Mapping[int, float]
    """Samples per second of the sizes that are known, at least one."""
    per_step: bool = False
    """Whether the points are steps per second, of the job's global batch."""
    loss: float = DEFAULT_LOSS
    """What each worker more adds to the time of a sample, as a share of one worker's, if only one size is known."""

    def speeds(self, most: int, samples_per_step: int) -> Speeds:
        """Samples per second for 0 to `most` workers."""
        scale = samples_per_step if self.per_step else 1
        return Speeds((0.0, *(self._rate(workers) * scale for workers in range(1, most + 1))))

    def extrapolates(self, most: int) -> bool:
        """Whether `most` workers are more than were measured."""
        return len(self.points) > 1 and most > max(self.points)

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


def read_curve(path: Path) -> SpeedCurve:
    """A CSV file `workers,steps_per_s`. Raises InvalidInputError with all wrong lines."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInputError([Problem(path=str(path), value=..., what=f"cannot be read: {reason}")]) from error
    if not lines or lines[0].replace(" ", "") != _HEADER:
        way_out = f"begin a CSV file with {_HEADER!r}"
        found = lines[0][:60] if lines else ""
        raise InvalidInputError([Problem(path=f"{path}:1", value=found, what="is no table of speeds", way_out=way_out)])
    rows = [(number, line.split(",")) for number, line in enumerate(lines, 1) if number > 1 and line.strip()]
    problems = [problem for number, fields in rows for problem in _problems(f"{path}:{number}", fields)]
    if not rows:
        problems.append(Problem(path=str(path), value=..., what="has no sizes in it"))
    if problems:
        raise InvalidInputError(problems)
    points = {int(fields[0]): float(fields[1]) for _, fields in rows}
    sizes = ", ".join(map(str, sorted(points)))
    return SpeedCurve(source=f"{path.name}: measured with {sizes} workers", points=points, per_step=True)


def _problems(path: str, fields: list[str]) -> Iterator[Problem]:
    if len(fields) != 2:
        yield Problem(path=path, value=",".join(fields), what="has not two fields", way_out=f"write {_HEADER}")
        return
    if not fields[0].strip().isdigit() or int(fields[0]) < 1:
        yield Problem(path=path, value=fields[0], what="is not a number of workers from 1 on")
    try:
        fine = 0 < float(fields[1]) < float("inf")
    except ValueError:
        fine = False
    if not fine:
        yield Problem(path=path, value=fields[1], what="is not a number of steps per second above 0")
