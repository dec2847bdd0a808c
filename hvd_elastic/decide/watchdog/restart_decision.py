"""Whether the MPI Operator is to be restarted: for which jobs, and not too often."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

PATIENCE_SECONDS: Final = 60.0
"""A job that the operator leaves alone for so long is a reason. At ten events a second, its default, that takes a
change of some 200 workers."""
REST_SECONDS: Final = 1800.0
"""At least, from one restart to the next, whoever did the last one. The operator's own wait ends after 1,000 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job of which the operator has pods to make or delete."""

    name: str
    """`namespace/name`."""
    uid: str
    wait_seconds: float
    """For which it has done neither."""
    work: str
    """What is to be done, for people."""
    is_refused: bool = False
    """Whether it was told why it may not, lately: a quota, a policy. A restart changes nothing about that."""


def to_restart_for(
    jobs: Iterable[WaitingJob], *, tried: Collection[str], since_restart: float
) -> tuple[WaitingJob, ...]:
    """The jobs for which the operator is to be restarted now; empty: it is not.

    Args:
        jobs: that wait.
        tried: UIDs of jobs that have waited since before a restart: it has not helped them.
        since_restart: seconds since the last one.
    """
    if since_restart < REST_SECONDS:
        return ()
    return tuple(
        job for job in jobs if job.wait_seconds >= PATIENCE_SECONDS and not job.is_refused and job.uid not in tried
    )
