"""Decides when the launcher gets a new list of hosts, and which workers save a checkpoint before it does."""

import logging
from collections.abc import Callable
from typing import Final

from hvd_elastic.discovery.rules.address_reuse import AddressReuse
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.rules.first_list import FirstList
from hvd_elastic.discovery.sidecar.change_log import ChangeLog
from hvd_elastic.discovery.sidecar.cluster_state import ClusterState
from hvd_elastic.discovery.sidecar.publisher import Publisher, SnapshotChange
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.discovery.sidecar.workers.worker_requests import WorkerRequests
from hvd_elastic.mpijob.contract import SnapshotState

log = logging.getLogger(__name__)

MIN_GAP_SECONDS: Final = 0.01
"""At least, between two lists."""
TURN_SECONDS: Final = 1.0
"""At most, between two: ages go by the clock."""


class ListUpdater:
    """Keeps the launcher's list true. All times are of `clock`, which must not jump. Not thread-safe."""

    def __init__(
        self,
        publisher: Publisher,
        first_list: FirstList,
        *,
        requests: WorkerRequests,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._publisher, self._first_list = publisher, first_list
        self._requests, self._metrics, self._clock = requests, metrics, clock
        self._address_reuse = AddressReuse(publisher.hosts)
        self._change_log = ChangeLog()
        self._at_risk: frozenset[str] = frozenset()
        self._last_update = clock()
        self.is_withholding = False
        """Whether something is withheld for a time: the first list, or an address in quarantine."""
        self.eligible = EligibleHosts()
        """The last decision."""

    @property
    def has_published(self) -> bool:
        """Whether this sidecar has written a snapshot."""
        return self._publisher.last is not None and not self._publisher.inherited

    @property
    def earliest(self) -> float:
        """When the next list may go out."""
        return self._last_update + MIN_GAP_SECONDS

    def is_due(self, state: ClusterState, now: float) -> bool:
        due = state.oldest_change is not None or self.is_withholding or now >= self._last_update + TURN_SECONDS
        return due and now >= self.earliest

    def update(self, state: ClusterState, listed: float, now: float) -> None:
        """Decide and publish. `listed`: when the pods were first listed. Raises OSError."""
        inventory = state.inventory
        offered = self._publisher.offered
        eligible = inventory.eligible_hosts(offered=offered)
        change = self._publisher.compare(eligible, inventory.index.changed_hosts())
        if quarantine := self._address_reuse.quarantine(change.joined, now):
            eligible = inventory.eligible_hosts(quarantine, offered)
            change = self._publisher.compare(eligible, inventory.index.changed_hosts())
        self.eligible, self._last_update = eligible, now
        goes_out = self._first_list.is_out or self._first_list.release(
            eligible, inventory.own_pods(), listed=listed, now=now
        )
        if goes_out:
            self._publish(eligible, change, state, now)
        self.is_withholding = bool(quarantine) or not goes_out
        state.oldest_change = None

    def close(self) -> None:
        """Log the changes that were not logged yet."""
        self._change_log.flush()

    def _publish(self, eligible: EligibleHosts, change: SnapshotChange, cluster: ClusterState, now: float) -> None:
        inventory, before = cluster.inventory, self._publisher.last
        state = SnapshotState.SHORT if eligible.is_short(inventory.rules) else SnapshotState.OK
        self._save_before_loss(eligible, state)
        if self._publisher.publish(eligible, change, state, cluster.contact_age(now), inventory.index.lines()):
            self._address_reuse.published(change.joined, change.left, now)
            assert self._publisher.last is not None
            self._metrics.generation.set(self._publisher.last.generation)
            self._change_log.add(self._publisher.last, change, inventory)
        inventory.index.mark()
        self._change_log.flush_if_due(now)
        if cluster.oldest_change is not None and self._publisher.last is not before:
            self._metrics.latency.observe(self._clock() - cluster.oldest_change)

    def _save_before_loss(self, eligible: EligibleHosts, state: SnapshotState) -> None:
        """Ask for checkpoints before the list goes out: it resizes the job at the next commit, the one to save."""
        before, self._at_risk = self._at_risk, frozenset(eligible.at_risk)
        offered = self._publisher.hosts
        if state is SnapshotState.SHORT and offered and not self._publisher.is_short:
            reason = "the job falls below its min workers"
            addresses = {host.address for host in (*offered, *eligible.hosts)}
        elif self._at_risk - before:
            reason = "a node may go soon"
            addresses = {host.address for host in eligible.hosts if host.pod in self._at_risk}
        else:
            return
        received = self._requests.request_checkpoint(addresses, reason)
        log.warning("%s: asked for a checkpoint, %d of %d workers received it", reason, received, len(addresses))
