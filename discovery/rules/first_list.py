"""The first list of a job: when to give it out.

A host that comes 0.03 to 0.6 s after the first list costs a whole resize more (0.4 to 1.2 s), and the host that comes
first is rank 0 for good. So the first list that names hosts waits a moment for those that are about to be ready. It is
a bounded, deliberate delay, once in a job's life; no later list is ever held.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.rules.eligibility import EligibleHosts, Reason
from hvd_elastic.discovery.rules.views import PodView

QUIET_SECONDS: Final = 0.7
"""No host has joined for so long."""
SETTLE_SECONDS: Final = 2.0
"""Since the first host could be offered, at most. The script waits 4 s for its first answer."""
ASK_SECONDS: Final = 1.5
"""A sidecar that starts beside a running job waits so long for the workers' first answers: one time-out of a probe."""

SOON: Final = frozenset({Reason.NOT_ASKED, Reason.NOT_READY, Reason.PENDING, Reason.QUARANTINED})
"""Left out now, likely in soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Seconds since three moments; None where there was no such moment."""

    listed: float
    """The first list of pods."""
    first_host: float | None
    """The first host could be offered."""
    last_host: float | None
    """The last host joined those."""


def may_open(
    answer: EligibleHosts,
    pods: Iterable[PodView],
    since: Since,
    *,
    max_workers: int,
    had_hosts: bool,
    settle_seconds: float = SETTLE_SECONDS,
) -> bool:
    """Whether the first list may be given out. `had_hosts`: an earlier sidecar of this job has named some."""
    unasked = any(out.reason is Reason.NOT_ASKED for out in answer.left_out)
    if unasked and since.listed < ASK_SECONDS:
        return False
    if had_hosts or since.first_host is None or since.last_host is None:
        return True
    complete = len(answer.hosts) >= max_workers or not _about_to_join(answer, pods)
    return complete or since.last_host >= min(QUIET_SECONDS, settle_seconds) or since.first_host >= settle_seconds


def _about_to_join(answer: EligibleHosts, pods: Iterable[PodView]) -> bool:
    placed = {pod.name for pod in pods if pod.node}
    return any(out.reason in SOON and out.pod in placed for out in answer.left_out)
