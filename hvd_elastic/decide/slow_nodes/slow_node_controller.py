"""A turn: read who is slow, decide, and write the exclusion into the pod template of the job's workers.

The sidecar replaces the slow worker by itself. It has no right to any of this, and this account has none to a pod.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, Json
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.submitted_job import MPIJOB_API
from hvd_elastic.decide.controller_turns import workers_by_owner
from hvd_elastic.decide.slow_nodes.exclusion_decision import Exclusions, exclude, slow_nodes
from hvd_elastic.decide.slow_nodes.replacing_job import ReplacingJob
from hvd_elastic.discovery.kube.node_exclusion import REQUIRED, exclusion_text
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.operator_lag import operator_work
from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES
from hvd_elastic.system.untrusted_values import UNREADABLE

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "hvd-elastic-slow-nodes"


class SlowNodeController:
    """Takes turns. One caller, one thread. What it knows is in the cluster."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        wall: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        """`wall`: Unix seconds."""
        self._cluster, self._wall = cluster, wall
        self._job_reading, self._pod_reading = ObjectReading("MPIJob"), ObjectReading("pod")
        self._refused: dict[str, tuple[str, ...]] = {}
        """What was said of each job, by its UID."""

    def turn(self) -> Mapping[str, Exclusions]:
        """The jobs that were changed now, as `NAMESPACE/NAME`. Raises ClusterError if the cluster cannot be read."""
        now = self._wall()
        listed = ({"apiVersion": MPIJOB_API, **job} for job in self._cluster.list(f"/apis/{MPIJOB_API}/mpijobs"))
        due = list(self._job_reading.each(listed, lambda job: ReplacingJob.if_due(job, now)))
        self._refused = {job.view.uid: self._refused.get(job.view.uid, ()) for job in due}
        if not due:
            return {}
        pods = workers_by_owner(self._cluster, self._pod_reading)
        nodes = list(self._cluster.list("/api/v1/nodes"))
        changed = {}
        for job in due:
            decided = self._decide(job, pods[job.view.uid], nodes, now)
            if decided is not None and job.is_changed_by(decided.until) and self._write(job, decided.until):
                changed[job.full_name] = decided
        return changed

    def _decide(
        self, job: ReplacingJob, pods: Sequence[PodView], nodes: Sequence[Json], now: float
    ) -> Exclusions | None:
        """None: not now, or the job cannot be read."""
        if operator_work(job.view, pods):
            return None  # the operator updates what it has read: a write meanwhile would be its error
        try:
            rooms = [room for node in nodes if (room := job.needs.room_on(node)) is not None]
        except UNREADABLE as error:  # its affinity is anybody's
            self._job_reading.name({"metadata": {"namespace": job.namespace, "name": job.name}}, error)
            return None
        slow = slow_nodes(job.slow, pods, job_uid=job.view.uid)
        decided = exclude(slow, job.excluded, rooms, min_workers=job.min_workers, now=now)
        for reason in set(decided.refused).difference(self._refused[job.view.uid]):
            log.info("%s: not excluded: %s", job.full_name, reason)
        self._refused[job.view.uid] = decided.refused
        return decided

    def _write(self, job: ReplacingJob, until: Mapping[str, float]) -> bool:
        """Whether it was written: what somebody has changed since it was read is left as it is until the next turn."""
        affinity = job.excluding(until)
        node_affinity = affinity.get("nodeAffinity")
        required = None if node_affinity is None else {REQUIRED: node_affinity.get(REQUIRED)}
        template = {"spec": {"affinity": {"nodeAffinity": required} if affinity else None}}
        text = exclusion_text(until) or None
        meta = {"uid": job.view.uid, "resourceVersion": job.view.version}
        change = {
            "metadata": {**meta, "annotations": {ANNOTATION_EXCLUDED_NODES: text}},
            "spec": {"mpiReplicaSpecs": {"Worker": {"template": template}}},
        }
        try:
            self._cluster.patch(mpijob_path(job.namespace, job.name), change, fieldManager=FIELD_MANAGER)
        except ClusterError as error:
            log.warning("%s: not changed: %s", job.full_name, error)
            return False
        log.info("%s: workers to come keep off %s", job.full_name, text or "no node any more")
        return True
