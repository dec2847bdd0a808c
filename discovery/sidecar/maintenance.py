"""Periodic work: dead pods are reaped, and a job that shall shrink is shrunk once its victims have left."""

import logging
from collections.abc import Callable, Container
from typing import Final

from hvd_elastic.discovery.rules import reaper, scale_down
from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.reaper import Reap, ReapRecord
from hvd_elastic.discovery.sidecar.cluster_actions import ActionResult, ClusterAction, RecordBeginning, SetReplicas
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions

log = logging.getLogger(__name__)

MAX_REAPS: Final = 5
"""Per call of `reap`."""
REPLICAS_RETRY_SECONDS: Final = 5.0


class Maintenance:
    """Chooses actions; `submit` has them carried out. Not thread-safe."""

    def __init__(self, submit: Callable[[ClusterAction], None], metrics: Metrics, options: SidecarOptions) -> None:
        self._submit, self._metrics, self._options = submit, metrics, options
        self._records: dict[str, ReapRecord] = {}
        """By pod name."""
        self._victims_since: float | None = None
        self._next_replicas = 0.0
        """When the replicas may be set again."""
        self._refusal = ""

    def reap(self, inventory: Inventory, silent: Container[str], now: float) -> None:
        """Have dead pods deleted. `silent`: UIDs of those that miss their probes. `now`: Unix seconds."""
        if not self._options.reap:
            return
        reaps = reaper.pods_to_reap(
            inventory.blocking_pods(),
            owner_uid=inventory.rules.owner_uid,
            nodes=inventory.nodes if inventory.nodes_known else None,
            silent=silent,
            records=self._records,
            now=now,
            stuck_seconds=self._options.stuck_seconds,
        )
        for reap in reaps[:MAX_REAPS]:
            self._records[reap.pod.name] = reaper.record_reap(self._records.get(reap.pod.name), now)
            log.warning("%s: %s", reap.pod.name, reap.message)
            self._submit(reap)

    def scale(self, job: JobView, inventory: Inventory, now: float) -> bool:
        """Choose victims and set the replicas; return whether the victims changed. `now`: of a clock that never
        jumps.
        """
        plan = scale_down.plan_scale(
            job,
            inventory.own_pods() if job.wanted else (),
            inventory.workers,
            min_workers=self._options.min_workers,
            max_workers=self._options.max_workers,
            waited_seconds=0.0 if self._victims_since is None else now - self._victims_since,
        )
        if plan.refusal != self._refusal:
            self._refusal = plan.refusal
            if plan.refusal:
                log.warning("not scaled: %s", plan.refusal)
        if plan.replicas is not None and now >= self._next_replicas:
            log.info("replicas: %d instead of %d", plan.replicas, job.replicas)
            self._next_replicas = now + REPLICAS_RETRY_SECONDS
            self._submit(SetReplicas(replicas=plan.replicas))
        if not plan.victims:
            self._victims_since = None
        elif self._victims_since is None:
            self._victims_since = now
        return inventory.update_victims(plan.victims)

    def take_result(self, result: ActionResult) -> None:
        if isinstance(result.action, Reap):
            self._metrics.reaps.labels(result.action.reason, "failed" if result.error else "done").inc()
        if result.error:
            log.warning("%s: %s", _failure(result.action), result.error)


def _failure(action: ClusterAction) -> str:
    match action:
        case Reap(pod=pod):
            return f"cannot delete {pod.name}"
        case SetReplicas():
            return "cannot set the replicas"
        case RecordBeginning():
            return "cannot record that the job has begun"
