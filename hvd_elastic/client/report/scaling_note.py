"""What the autoscaler writes on an MPIJob: its last change and why, whose number counts, and how fast the job was.

It is all that the autoscaler remembers of a job, so another one goes on where it ended.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hvd_elastic.client.report.words.time_words import duration_words
from hvd_elastic.mpijob.contract import ANNOTATION_AUTOSCALER
from hvd_elastic.system.plain_words import count_words
from hvd_elastic.system.untrusted_values import (
    UNREADABLE,
    decimal_count,
    finite_number,
    json_object,
    typed_fields,
    whole_number,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingNote:
    """One line of JSON in ANNOTATION_AUTOSCALER."""

    unix: float
    """When the autoscaler last changed the number of workers."""
    before: int
    workers: int
    """From how many to how many."""
    reason: str
    ceiling: int | None = None
    """The number of workers that a person asked for with `hvd-elastic scale`: the autoscaler asks for no more."""
    speeds: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """By the number of workers: mean samples or steps per second, and how often it was heard."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(
            {key: value for key, value in asdict(self).items() if value is not None}, separators=(",", ":")
        )

    @classmethod
    def of_job(cls, job: Mapping[str, Any]) -> "ScalingNote | None":
        """Read from an MPIJob. None: there is none, or somebody wrote another thing there."""
        try:
            document = json_object((job["metadata"].get("annotations") or {}).get(ANNOTATION_AUTOSCALER))
            speeds = dict(map(_speed, document.pop("speeds", {}).items()))
            return cls(**typed_fields(cls, document), speeds=speeds)
        except UNREADABLE:
            return None

    def words(self, now: float) -> str:
        """`from 8 to 6 workers 12 s ago: inference asks for 2 more GPUs`."""
        bound = f" (at most {self.ceiling}: hvd-elastic scale)" if self.ceiling is not None else ""
        to = count_words(self.workers, "worker")
        return f"from {self.before} to {to} {duration_words(max(0.0, now - self.unix))} ago{bound}: {self.reason}"


def _speed(entry: tuple[str, Any]) -> tuple[str, tuple[float, int]]:
    """One of `speeds`. Raises ValueError or TypeError."""
    size, (heard, times) = entry
    mean, count = finite_number(heard), whole_number(times)
    if decimal_count(size) is None or mean is None or count is None:
        raise ValueError("is not a speed")
    return size, (mean, count)
