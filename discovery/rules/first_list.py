"""When a job's first list of hosts goes out.

A host that joins 0.03 to 0.6 s after the first list costs a whole resize (0.4 to 1.2 s), and the first host keeps rank
0. So the first list that names hosts waits a moment for those that are about to be ready. This bounded delay
happens once in a job's life; no later list is held.
"""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.rules.pod_verdict import Reason

QUIET_SECONDS: Final = 0.7
"""The list goes out when no host has joined for this long."""
SETTLE_SECONDS: Final = 2.0
"""At most this long after the first host was eligible. The host script waits 4 s for its first answer."""
FIRST_ANSWERS_SECONDS: Final = 1.5
"""How long a sidecar that starts beside a running job waits for the workers' first answers: one time-out of a probe."""

JOINING: Final = frozenset({Reason.NOT_ASKED, Reason.NOT_READY, Reason.PENDING, Reason.QUARANTINED})
"""Reasons that are likely to pass soon."""


class FirstList:
    """Withholds it. All times are of one clock that does not jump. Not thread-safe."""

    def __init__(self, *, max_workers: int, settle_seconds: float = SETTLE_SECONDS, had_hosts: bool = False) -> None:
        """`had_hosts`: an earlier sidecar of this job has offered some."""
        self._max_workers, self._settle_seconds, self._had_hosts = max_workers, settle_seconds, had_hosts
        self.is_out = False
        """Whether a list that names hosts went out."""
        self._hosts = 0
        self._first_host: float | None = None
        self._last_host: float | None = None

    def release(self, eligible: EligibleHosts, pods: Iterable[PodView], *, listed: float, now: float) -> bool:
        """Whether this list may go out. `pods`: the job's own. `listed`: when they were first listed."""
        if len(eligible.hosts) > self._hosts:
            self._last_host = now
            self._first_host = now if self._first_host is None else self._first_host
        self._hosts = len(eligible.hosts)
        goes_out = self._may_go_out(eligible, pods, now - listed, now)
        self.is_out = goes_out and bool(eligible.hosts)
        return goes_out

    def _may_go_out(self, eligible: EligibleHosts, pods: Iterable[PodView], known_seconds: float, now: float) -> bool:
        unasked = any(out.reason is Reason.NOT_ASKED for out in eligible.left_out)
        if unasked and known_seconds < FIRST_ANSWERS_SECONDS:
            return False
        if self._had_hosts or self._first_host is None or self._last_host is None:
            return True
        if len(eligible.hosts) >= self._max_workers or not _any_joining(eligible, pods):
            return True
        is_quiet = now - self._last_host >= min(QUIET_SECONDS, self._settle_seconds)
        return is_quiet or now - self._first_host >= self._settle_seconds


def _any_joining(eligible: EligibleHosts, pods: Iterable[PodView]) -> bool:
    scheduled = {pod.name for pod in pods if pod.node}
    return any(out.reason in JOINING and out.pod in scheduled for out in eligible.left_out)
