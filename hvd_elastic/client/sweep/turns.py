"""Which jobs of a sweep start next. Pure: the jobs as they are and the cap in, the jobs to resume out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.mpijob.contract import ANNOTATION_TURN
from hvd_elastic.system.untrusted_values import decimal_count


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """One job of a sweep, as its MPIJob tells of it."""

    name: str
    uid: str
    suspended: bool
    ended: bool
    turn: int | None = None
    """Its place in the line; None: it does not wait for its turn."""

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> "SweepJob":
        """Read an MPIJob as the API server sends it."""
        meta, status = job["metadata"], job.get("status") or {}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            suspended=bool((job["spec"].get("runPolicy") or {}).get("suspend")),
            # A job that goes on after an eviction has the condition Failed, and no completion time.
            ended=bool(true_condition(job, "Succeeded") or status.get("completionTime")),
            turn=decimal_count((meta.get("annotations") or {}).get(ANNOTATION_TURN)),
        )

    @property
    def runs(self) -> bool:
        """Whether it counts against the cap: it has workers, or is about to get them."""
        return not self.ended and not self.suspended

    @property
    def waits(self) -> bool:
        """Whether it is to be resumed when there is room."""
        return not self.ended and self.suspended and self.turn is not None


def next_jobs(jobs: Iterable[SweepJob], at_once: int) -> Sequence[SweepJob]:
    """The jobs to resume now, so that at most `at_once` run. A job that has failed is not tried again."""
    jobs = tuple(jobs)
    line = sorted((job for job in jobs if job.waits), key=lambda job: (job.turn, job.name))
    return line[: max(0, at_once - sum(job.runs for job in jobs))]


def is_over(jobs: Iterable[SweepJob]) -> bool:
    """Whether no job will ever need a turn: all have ended, or are gone."""
    return all(job.ended for job in jobs)
