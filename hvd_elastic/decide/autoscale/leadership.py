"""One leader among several autoscalers, by a Lease of `coordination.k8s.io/v1`.

The protocol is client-go's `tools/leaderelection`, so its rules and times hold: a candidate takes a Lease that it has
seen unchanged for the whole lease duration by its own clock; each write names the version that was read, so of two
candidates one is refused; a leader that could not renew for the renew deadline is none any more. The clocks need not
agree, only run about equally fast.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, ConflictError, Json, NotFoundError

log = logging.getLogger(__name__)

LEASE_SECONDS: Final = 15.0
RENEW_DEADLINE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
"""The defaults of Kubernetes' own controllers (`LeaderElectionConfiguration`)."""
LEASE_NAME: Final = "hvd-elastic-autoscaler"


@dataclass(frozen=True, slots=True)
class _Seen:
    """A record of the Lease, and when it was first seen, by this process's clock."""

    record: Json
    at: float


class Leadership:
    """The leadership of one candidate. One thread renews it, any may ask `holds`."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        namespace: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._identity, self._clock = cluster, identity, clock
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._seen: _Seen | None = None
        self._until = float("-inf")
        self.is_answered = False
        """Whether the API server answered when the Lease was last looked at, whoever holds it."""

    @property
    def holder(self) -> str:
        """Who holds the Lease, as it was last seen; empty: nobody."""
        return str(self._seen.record.get("holderIdentity") or "") if self._seen else ""

    def holds(self) -> bool:
        """Whether this candidate may act now."""
        return self._clock() < self._until

    def attempt(self) -> bool:
        """Take the Lease, or renew it. False: it is another's. Raises ClusterError; then it may be lost soon."""
        asked = self._clock()
        try:
            taken = self._take(asked)
        except ConflictError:  # another was faster
            taken = False
        except ClusterError:
            self.is_answered = False
            raise
        self.is_answered = True
        if taken:
            # The others count from when they see this, which is later.
            self._until = asked + RENEW_DEADLINE_SECONDS
        else:
            self._until = float("-inf")
        return taken

    def keep(self, stop: Event) -> None:
        """Take and renew the Lease until `stop`, then give it back."""
        while not stop.is_set():
            was = self.holds()
            try:
                self.attempt()
            except ClusterError as error:
                log.warning("the Lease cannot be renewed: %s", error)
            if was != self.holds():
                log.info("this autoscaler %s", "leads now" if self.holds() else "does not lead any more")
            stop.wait(RETRY_SECONDS)
        self.release()

    def release(self) -> None:
        """Give the Lease back, so that another need not wait for its end."""
        if not self.holds():
            return
        self._until = float("-inf")
        try:
            lease = self._cluster.get(f"{self._collection}/{LEASE_NAME}")
            if lease["spec"].get("holderIdentity") == self._identity:
                self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time()})
        except ClusterError as error:
            log.info("the Lease was not given back, and ends by itself: %s", error)

    def _take(self, now: float) -> bool:
        try:
            lease = self._cluster.get(f"{self._collection}/{LEASE_NAME}")
        except NotFoundError:
            meta = {"name": LEASE_NAME, "namespace": self._namespace}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": self._record({})}
            self._observe(self._cluster.create(self._collection, body), now)
            return True
        self._observe(lease, now)
        if self._is_anothers(now):
            return False
        self._observe(self._write(lease, self._record(lease.get("spec") or {})), now)
        return True

    def _is_anothers(self, now: float) -> bool:
        assert self._seen is not None
        lasts = float(self._seen.record.get("leaseDurationSeconds") or 0)
        return self.holder not in {"", self._identity} and now < self._seen.at + lasts

    def _observe(self, lease: Json, now: float) -> None:
        record = lease.get("spec") or {}
        if self._seen is None or self._seen.record != record:
            self._seen = _Seen(record, now)

    def _record(self, before: Json) -> Json:
        now, is_ours = _micro_time(), before.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "acquireTime": before.get("acquireTime", now) if is_ours else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if is_ours or not before else 1),
        }

    def _write(self, lease: Json, spec: dict[str, Any]) -> Json:
        """Raises ConflictError if somebody has written since `lease` was read."""
        version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        return self._cluster.patch(f"{self._collection}/{LEASE_NAME}", {"metadata": version, "spec": spec})


def _micro_time() -> str:
    """Kubernetes' `MicroTime`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
