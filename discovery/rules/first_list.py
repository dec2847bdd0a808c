"""When a job's first list of hosts goes out.

A host that joins 0.03 to 0.6 s after the first list costs a whole resize (0.4 to 1.2 s), and the first host keeps rank
0. So the first list that names hosts waits a moment for those that are about to be ready. This bounded delay
happens once in a job's life; no later list is held.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import Reason

QUIET_SECONDS: Final = 0.7
"""The list goes out when no host has joined for this long."""
SETTLE_SECONDS: Final = 2.0
"""At most this long after the first host was eligible. The host script waits 4 s for its first answer."""
FIRST_ANSWERS_SECONDS: Final = 1.5
"""How long a sidecar that starts beside a running job waits for the workers' first answers: one time-out of a probe."""

JOINING: Final = frozenset({Reason.NOT_ASKED, Reason.NOT_READY, Reason.PENDING, Reason.QUARANTINED})
"""Reasons that are likely to pass soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsSince:
    """Seconds since three moments; None if the moment has not come."""

    listed: float
    """The pods were first listed."""
    first_host: float | None
    """The first host was eligible."""
    last_host: float | None
    """The latest host became eligible."""


def may_go_out(
    eligible: EligibleHosts,
    pods: Iterable[PodView],
    since: SecondsSince,
    *,
    max_workers: int,
    had_hosts: bool,
    settle_seconds: float = SETTLE_SECONDS,
) -> bool:
    """Whether the first list may go out. `had_hosts`: an earlier sidecar of this job has offered some."""
    unasked = any(out.reason is Reason.NOT_ASKED for out in eligible.left_out)
    if unasked and since.listed < FIRST_ANSWERS_SECONDS:
        return False
    if had_hosts or since.first_host is None or since.last_host is None:
        return True
    complete = len(eligible.hosts) >= max_workers or not _any_joining(eligible, pods)
    return complete or since.last_host >= min(QUIET_SECONDS, settle_seconds) or since.first_host >= settle_seconds


def _any_joining(eligible: EligibleHosts, pods: Iterable[PodView]) -> bool:
    scheduled = {pod.name for pod in pods if pod.node}
    return any(out.reason in JOINING and out.pod in scheduled for out in eligible.left_out)


class FirstList:
    """Withholds it. All times are of one clock that does not jump. Not thread-safe."""

    def __init__(self, *, max_workers: int, settle_seconds: float, had_hosts: bool) -> None:
        """`had_hosts`: an earlier sidecar of this job has offered some."""
        self._max_workers, self._settle_seconds, self._had_hosts = max_workers, settle_seconds, had_hosts
        self._is_out = False
        self._last_count = 0
        self._first_host: float | None = None
        self._last_host: float | None = None

    def release(self, eligible: EligibleHosts, inventory: Inventory, *, listed: float, now: float) -> bool:
        """Whether this list may go out, as every list may after the first that names hosts.

        `listed`: when the pods were first listed.
        """
        if self._is_out:
            return True
        if len(eligible.hosts) > self._last_count:
            self._last_host = now
            self._first_host = now if self._first_host is None else self._first_host
        self._last_count = len(eligible.hosts)
        since = SecondsSince(
            listed=now - listed,
            first_host=None if self._first_host is None else now - self._first_host,
            last_host=None if self._last_host is None else now - self._last_host,
        )
        goes_out = may_go_out(
            eligible,
            inventory.own_pods(),
            since,
            max_workers=self._max_workers,
            had_hosts=self._had_hosts,
            settle_seconds=self._settle_seconds,
        )
        self._is_out = goes_out and bool(eligible.hosts)
        return goes_out
