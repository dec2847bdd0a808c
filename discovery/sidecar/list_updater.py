"""Decides when the launcher gets a new list of hosts, and which workers save a checkpoint before it does."""

import logging
from collections.abc import Callable, Iterable

from hvd_elastic.discovery.rules import first_list
from hvd_elastic.discovery.rules.address_reuse import AddressReuse
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.sidecar.change_log import ChangeLog
from hvd_elastic.discovery.sidecar.publisher import Publisher
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.mpijob.contract import SnapshotState

log = logging.getLogger(__name__)

RequestCheckpoint = Callable[[Iterable[str], str], int]
"""Asks the workers at these addresses for a durable checkpoint, with the reason; returns how many received it."""


class ListUpdater:
    """Keeps the launcher's list true. Not thread-safe."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        request_checkpoint: RequestCheckpoint,
        metrics: Metrics,
        max_workers: int,
        settle_seconds: float = first_list.SETTLE_SECONDS,
    ) -> None:
        self._publisher, self._request_checkpoint, self._metrics = publisher, request_checkpoint, metrics
        self._max_workers, self._settle_seconds = max_workers, settle_seconds
        self._address_reuse = AddressReuse(publisher.hosts)
        self._change_log = ChangeLog()
        self._had_hosts = bool(publisher.hosts)
        self._first_list_is_out = False
        self._eligible_count = 0
        self._first_host: float | None = None
        self._last_host: float | None = None
        self._at_risk: frozenset[str] = frozenset()
        self.eligible = EligibleHosts()
        """The last decision."""

    def update(self, inventory: Inventory, *, listed: float, last_contact: float, now: float) -> bool:
        """Decide and publish; return False if something is withheld, so that this must be called again soon.

        All times are on one clock that does not jump. Raises OSError.

        Args:
            inventory: what is known.
            listed: when the pods were first listed.
            last_contact: when the API server last confirmed the pods.
            now: the time.
        """
        eligible = inventory.eligible_hosts()
        change = self._publisher.compare(eligible, inventory.changed_hosts())
        if quarantine := self._address_reuse.quarantine(change.joined, now):
            eligible = inventory.eligible_hosts(quarantine)
            change = self._publisher.compare(eligible, inventory.changed_hosts())
        self.eligible = eligible
        if not self._first_list_is_out and not self._first_list_may_go_out(inventory, listed, now):
            return False
        self._first_list_is_out = self._first_list_is_out or bool(eligible.hosts)
        state = SnapshotState.SHORT if eligible.is_short(inventory.rules) else SnapshotState.OK
        self._save_before_loss(eligible, state)
        if self._publisher.publish(eligible, change, state, now - last_contact, inventory.lines()):
            self._address_reuse.published(change.joined, change.left, now)
            assert self._publisher.last is not None
            self._metrics.generation.set(self._publisher.last.generation)
            self._change_log.add(self._publisher.last, change, inventory)
        inventory.mark()
        self._change_log.flush_if_due(now)
        return not quarantine

    def close(self) -> None:
        """Log the changes that were not logged yet."""
        self._change_log.flush()

    def _first_list_may_go_out(self, inventory: Inventory, listed: float, now: float) -> bool:
        if len(self.eligible.hosts) > self._eligible_count:
            self._last_host = now
            self._first_host = now if self._first_host is None else self._first_host
        self._eligible_count = len(self.eligible.hosts)
        since = first_list.SecondsSince(
            listed=now - listed,
            first_host=None if self._first_host is None else now - self._first_host,
            last_host=None if self._last_host is None else now - self._last_host,
        )
        return first_list.may_go_out(
            self.eligible,
            inventory.own_pods(),
            since,
            max_workers=self._max_workers,
            had_hosts=self._had_hosts,
            settle_seconds=self._settle_seconds,
        )

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
        received = self._request_checkpoint(addresses, reason)
        log.warning("%s: asked for a checkpoint, %d of %d workers received it", reason, received, len(addresses))
