"""A job's speed at some sizes beside ideal scaling, from its profile. Pure.

Ideal is in proportion to the number of workers, from the smallest size that was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hvd_elastic.client.profile.job_profile import JobProfile
from hvd_elastic.client.profile.profile_of_job import NotMeasuredError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """One size."""

    workers: int
    nodes: int
    steps: int
    step_seconds: float
    """Measured, of one step."""
    samples_per_second: float
    """Measured, of all workers together."""
    ideal_samples_per_second: float
    efficiency: float
    """The one over the other."""
    fitted_samples_per_second: float


def scaling_rows(profile: JobProfile, sizes: Sequence[int] = ()) -> tuple[ScalingRow, ...]:
    """A row for each of the sizes that was measured, ascending; of all that were, if none is named.

    Raises NotMeasuredError if the job has reported the steps of none of them.
    """
    wanted = set(sizes) or {one.workers for one in profile.measured}
    found = [row for row in profile.sizes() if row["workers"] in wanted and row["measured_seconds"]]
    if not found:
        raise NotMeasuredError(
            f"{profile.job} has not reported the steps of {', '.join(map(str, sorted(wanted)))} workers"
        )
    speeds = [profile.batch.of_all(row["workers"]) / row["measured_seconds"] for row in found]
    each = speeds[0] / found[0]["workers"]
    return tuple(
        ScalingRow(
            workers=row["workers"],
            nodes=row["nodes"],
            steps=row["steps"],
            step_seconds=row["measured_seconds"],
            samples_per_second=speed,
            ideal_samples_per_second=each * row["workers"],
            efficiency=speed / (each * row["workers"]),
            fitted_samples_per_second=row["samples_per_second"],
        )
        for row, speed in zip(found, speeds, strict=True)
    )
