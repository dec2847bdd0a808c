"""What is done by the clock: dead pods are reaped, a smaller job is made smaller once its victims have left."""

import logging
from collections.abc import Callable
from typing import Final

from hvd_elastic.discovery.rules import reaper, scale_down
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.reaper import PodRecord, Reap
from hvd_elastic.discovery.rules.scale_down import JobView
from hvd_elastic.discovery.sidecar.cluster_actions import Chore, Done, SetReplicas
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics

log = logging.getLogger(__name__)

REAPS_AT_ONCE: Final = 5
RETRY_SECONDS: Final = 5.0
"""After the replicas could not be set."""


class Maintenance:
    """Chooses chores; `put` has them done. Called by one thread."""

    def __init__(
        self,
        put: Callable[[Chore], None],
        metrics: Metrics,
        *,
        min_workers: int,
        max_workers: int,
        reap: bool = True,
        stuck_seconds: float = reaper.STUCK_SECONDS,
    ) -> None:
        self._put, self._metrics = put, metrics
        self._min_workers, self._max_workers = min_workers, max_workers
        self._reaps, self._stuck_seconds = reap, stuck_seconds
        self._records: dict[str, PodRecord] = {}
        self._victims_since: float | None = None
        self._not_before = 0.0
        self._refused = ""

    def reap(self, roster: Inventory, now: float) -> None:
        """Have dead pods deleted. `now`: Unix seconds."""
        if not self._reaps:
            return
        found = reaper.due(
            roster.ending_pods(),
            owner_uid=roster.rules.owner_uid,
            nodes=roster.nodes if roster.nodes_known else None,
            workers=roster.workers,
            records=self._records,
            now=now,
            stuck_seconds=self._stuck_seconds,
        )
        for reap in found[:REAPS_AT_ONCE]:
            self._records[reap.pod.name] = reaper.note(self._records.get(reap.pod.name), reap.pod, now)
            log.warning("%s: %s", reap.pod.name, reap.message)
            self._put(reap)

    def scale(self, job: JobView, roster: Inventory, now: float) -> bool:
        """Choose victims and set the replicas; whether the victims changed. `now`: of a clock that does not jump."""
        plan = scale_down.resize(
            job,
            roster.own_pods() if job.wanted else (),
            roster.workers,
            min_workers=self._min_workers,
            max_workers=self._max_workers,
            waited_seconds=0.0 if self._victims_since is None else now - self._victims_since,
        )
        if plan.refused != self._refused:
            self._refused = plan.refused
            if plan.refused:
                log.warning("not scaled: %s", plan.refused)
        if plan.replicas is not None and now >= self._not_before:
            log.info("replicas: %d instead of %d", plan.replicas, job.replicas)
            self._not_before = now + RETRY_SECONDS
            self._put(SetReplicas(replicas=plan.replicas))
        if not plan.victims:
            self._victims_since = None
        elif self._victims_since is None:
            self._victims_since = now
        return roster.take_victims(plan.victims)

    def take(self, done: Done) -> None:
        """Hear how a chore went."""
        if isinstance(done.chore, Reap):
            self._metrics.reaps.labels(done.chore.why, "failed" if done.error else "done").inc()
        if done.error:
            log.warning("%s: %s", _named(done.chore), done.error)


def _named(chore: Chore) -> str:
    return f"cannot delete {chore.pod.name}" if isinstance(chore, Reap) else "cannot set the replicas"
