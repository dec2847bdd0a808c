"""From what is known to what the launcher is told: when a list goes out, and who is warned before it does."""

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

Warn = Callable[[Iterable[str], str], int]
"""Ask the workers at these addresses for a durable checkpoint, and why; how many took it."""


class Announcer:
    """Keeps the launcher's list true. Called by one thread."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        warn: Warn,
        metrics: Metrics,
        max_workers: int,
        settle_seconds: float = first_list.SETTLE_SECONDS,
    ) -> None:
        self._publisher, self._warn, self._metrics = publisher, warn, metrics
        self._max_workers, self._settle_seconds = max_workers, settle_seconds
        self._handover = AddressReuse(publisher.hosts)
        self._journal = ChangeLog()
        self._had_hosts = bool(publisher.hosts)
        self._opened = False
        self._offered = 0
        self._first_host: float | None = None
        self._last_host: float | None = None
        self._at_risk: frozenset[str] = frozenset()
        self.answer = EligibleHosts()
        """The last decision."""

    def announce(self, roster: Inventory, *, listed: float, word: float, now: float) -> bool:
        """Decide and publish; whether the launcher knows all by now.

        `listed`: when the pods were first listed; `word`: the API server's last word; both on the clock of `now`.
        Raises OSError.
        """
        answer = roster.answer()
        change = self._publisher.compare(answer)
        if blocked := self._handover.blocked(change.joined, now):
            answer = roster.answer(blocked)
            change = self._publisher.compare(answer)
        self.answer = answer
        if not self._opened and not self._may_open(roster, listed, now):
            return False
        self._opened = self._opened or bool(answer.hosts)
        state = SnapshotState.SHORT if answer.is_short(roster.rules) else SnapshotState.OK
        self._warn_first(answer, state)
        if self._publisher.publish(answer, change, state, now - word):
            self._handover.published(change.joined, change.left, now)
            assert self._publisher.last is not None
            self._metrics.generation.set(self._publisher.last.generation)
            self._journal.note(self._publisher.last, change, roster)
        roster.told()
        self._journal.write(now)
        return not blocked

    def close(self) -> None:
        """Log what was not logged so far."""
        self._journal.close()

    def _may_open(self, roster: Inventory, listed: float, now: float) -> bool:
        if len(self.answer.hosts) > self._offered:
            self._last_host = now
            self._first_host = now if self._first_host is None else self._first_host
        self._offered = len(self.answer.hosts)
        since = first_list.Since(
            listed=now - listed,
            first_host=None if self._first_host is None else now - self._first_host,
            last_host=None if self._last_host is None else now - self._last_host,
        )
        return first_list.may_open(
            self.answer,
            roster.own_pods(),
            since,
            max_workers=self._max_workers,
            had_hosts=self._had_hosts,
            settle_seconds=self._settle_seconds,
        )

    def _warn_first(self, answer: EligibleHosts, state: SnapshotState) -> None:
        """Before the list: its arrival resizes the job at the next commit, and that commit is the one to keep."""
        before, self._at_risk = self._at_risk, frozenset(answer.at_risk)
        told = self._publisher.hosts
        if state is SnapshotState.SHORT and told and not self._publisher.is_short:
            reason, asked = "the job falls below its min workers", {host.address for host in (*told, *answer.hosts)}
        elif self._at_risk - before:
            reason, asked = "a node may go soon", {host.address for host in answer.hosts if host.pod in self._at_risk}
        else:
            return
        took = self._warn(asked, reason)
        log.warning("%s: %d of %d workers were asked for a checkpoint", reason, took, len(asked))
