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
            document = json.loads((job["metadata"].get("annotations") or {})[ANNOTATION_AUTOSCALER])
            ceiling = document.get("ceiling")
            return cls(
                unix=float(document["unix"]),
                before=int(document["before"]),
                workers=int(document["workers"]),
                reason=str(document["reason"]),
                ceiling=None if ceiling is None else int(ceiling),
                speeds={
                    str(int(size)): (float(mean), int(count))
                    for size, (mean, count) in dict(document.get("speeds") or {}).items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def words(self, now: float) -> str:
        """`from 8 to 6 workers 12 s ago: inference asks for 2 more GPUs`."""
        bound = f" (at most {self.ceiling}: hvd-elastic scale)" if self.ceiling is not None else ""
        to = count_words(self.workers, "worker")
        return f"from {self.before} to {to} {duration_words(max(0.0, now - self.unix))} ago{bound}: {self.reason}"
