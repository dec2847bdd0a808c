"""A job that has slow workers and asks for others, or whose workers keep off nodes, as its MPIJob tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob
from hvd_elastic.decide.slow_nodes.exclusion_decision import slow_pods, still_excluded
from hvd_elastic.decide.slow_nodes.worker_room import WorkerNeeds
from hvd_elastic.discovery.kube.node_exclusion import excluded_nodes, excluding
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacingJob:
    """One that goes on."""

    name: str
    namespace: str
    view: JobView
    min_workers: int
    slow: Mapping[str, float]
    """The pods that have been slow for long enough, as the job says it: name to Unix seconds since when."""
    excluded: Mapping[str, float]
    """Node to Unix seconds until which it is excluded."""
    affinity: Json
    """Of its worker template."""
    needs: WorkerNeeds

    @classmethod
    def if_due(cls, mpijob: dict[str, Any], now: float) -> "ReplacingJob | None":
        """None: there is nothing to see to at `now`, in Unix seconds. Most jobs with an exclusion wait for its end."""
        job = SubmittedJob.from_json(mpijob)
        excluded = excluded_nodes(mpijob)
        # Most jobs are told by this from their text, which takes a thousandth of the time.
        asks = '"slow_workers"' in job.description_text and not job.suspended
        annotations = mpijob["metadata"].get("annotations") or {}
        slow = slow_pods(LiveStatus.from_json(annotations.get(ANNOTATION_STATUS) or ""), now) if asks else {}
        if job.ended or job.is_deleted or not (slow or excluded):
            return None
        least = _min_workers(job) if slow else None
        pod = mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
        found = cls(
            name=job.name,
            namespace=job.namespace,
            view=JobView.from_json(mpijob),
            min_workers=least or 1,
            slow=slow if least else {},
            excluded=excluded,
            affinity=pod.get("affinity") or {},
            needs=WorkerNeeds.from_json(pod),
        )
        has_ended = found.is_changed_by(still_excluded(excluded, now))
        return found if found.slow or has_ended else None

    @property
    def full_name(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.namespace}/{self.name}"

    def is_changed_by(self, nodes: Mapping[str, float]) -> bool:
        """Whether its MPIJob does not say yet that these nodes are excluded, and no others of ours."""
        return nodes != self.excluded or self.excluding(nodes) != self.affinity

    def excluding(self, nodes: Mapping[str, float]) -> Json:
        """Its worker template's affinity with these nodes excluded, and no others of ours."""
        return excluding(self.affinity, nodes, in_place_of=self.excluded)


def _min_workers(job: SubmittedJob) -> int | None:
    """None: the job does not ask for other workers, or its description cannot be read."""
    try:
        spec = job.description
    except JobStateError:
        return None
    return spec.workers.min if spec.slow_workers == "replace" else None
