"""A job that the autoscaler may change, as its MPIJob tells of it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.client.operations.submitted_job import MPIJOB_API, JobStateError, SubmittedJob
from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.decide.autoscale.observed_speeds import ObservedSpeeds
from hvd_elastic.decide.autoscale.shared_cluster import Placement
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS
from hvd_elastic.policy.job_demand import JobDemand
from hvd_elastic.system.untrusted_values import decimal_count

if TYPE_CHECKING:
    from hvd_elastic.mpijob.description.job_spec import WorkersSpec

COOLDOWN_SECONDS: Final = 30.0
"""Unless the description says another: a new worker's start takes about as long."""
_STALE_SECONDS: Final = 120.0
"""A status older than this says nothing about now: the sidecar writes one every half minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaledJob:
    """An MPIJob whose description has `autoscale`, and that goes on."""

    name: str
    """`NAMESPACE/NAME`."""
    uid: str
    resource_version: str
    """Of what was read: a change is refused if somebody has written since."""
    min: int
    """The least number that it is given: no less than its floor, which inference does not take either."""
    max: int
    sizes: tuple[int, ...]
    """The only numbers of workers that train; empty: any."""
    gpus: int
    """Of one worker."""
    resource: str
    """That they are asked for by."""
    asked: int
    """Workers that are asked for now, by the annotation WANTED_WORKERS, else by the replicas."""
    ceiling: int | None
    """What a person has set; None: nothing, or `max`, which gives it all back to the autoscaler."""
    weight: float
    quota: int | None
    cooldown_seconds: float
    buy: bool
    budget_gpu_seconds: float | None
    per_worker_batch: bool
    """Whether a step has more samples with more workers."""
    note: ScalingNote | None
    live: LiveStatus | None
    placement: Placement
    """Of its workers."""

    @classmethod
    def from_json(cls, mpijob: dict[str, Any]) -> "AutoscaledJob | None":
        """None: the job does not ask for an autoscaler, cannot have one, or does not go on."""
        job = SubmittedJob.from_json(mpijob)
        # Most jobs are told by this from their text, which takes a thousandth of the time.
        if mpijob["apiVersion"] != MPIJOB_API or '"autoscale"' not in job.description_text:
            return None
        try:
            spec = job.description
        except JobStateError:
            return None
        scaled, workers = spec.autoscale, spec.workers
        if scaled is None or not workers.gpus or job.suspended or job.ended or job.is_deleted:
            return None
        note, annotations = ScalingNote.of_job(mpijob), mpijob["metadata"].get("annotations") or {}
        ceiling = _ceiling(job.wanted, note, workers.min, workers.max)
        template = mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
        return cls(
            name=f"{job.namespace}/{job.name}",
            uid=job.uid,
            resource_version=mpijob["metadata"].get("resourceVersion", ""),
            min=_least(workers),
            max=workers.max,
            sizes=workers.allowed_sizes,
            gpus=workers.gpus,
            resource=workers.gpu_resource,
            asked=min(job.asked, ceiling or workers.max),
            ceiling=ceiling,
            weight=scaled.weight,
            quota=scaled.quota,
            cooldown_seconds=COOLDOWN_SECONDS if scaled.cooldown is None else scaled.cooldown,
            buy=scaled.buy,
            budget_gpu_seconds=None if scaled.budget is None else scaled.budget * 3600.0,
            per_worker_batch=spec.batch.per_worker is not None,
            note=note,
            live=LiveStatus.from_json(annotations.get(ANNOTATION_STATUS) or ""),
            placement=Placement.from_json(template["spec"]),
        )

    def report(self, now: float) -> tuple[int, float] | None:
        """Workers and speed, if the job has settled at a size and said so lately. `now`: Unix seconds."""
        live = self.live
        if live is None or live.activity is not Activity.TRAINING or not live.steps_per_second:
            return None
        if now - live.unix > _STALE_SECONDS or live.unix - live.since < COOLDOWN_SECONDS or live.workers < 1:
            return None
        return live.workers, live.steps_per_second * (live.workers if self.per_worker_batch else 1)

    def may_buy(self) -> bool:
        """Whether it may ask for workers that have no room yet."""
        held = self.live.gpu_seconds if self.live else 0.0
        return self.buy and (self.budget_gpu_seconds is None or held < self.budget_gpu_seconds)

    def is_cooling(self, now: float) -> bool:
        """Whether its number of workers was changed too lately."""
        return self.note is not None and now - self.note.unix < self.cooldown_seconds

    def demand(self, present: int, speeds: ObservedSpeeds, now: float) -> JobDemand:
        """What it asks for. `present`: workers that it has, or has room for."""
        live = self.live
        trains = live is not None and live.activity is Activity.TRAINING
        most = self.max if self.ceiling is None else self.ceiling
        demand = JobDemand(
            name=self.name,
            min=self.min,
            max=most,
            sizes=self.sizes,
            workers=max(0, min(live.workers, most)) if live and trains else 0,
            wanted=present,
            gpus=self.gpus,
            speeds=speeds.speeds(most),
            weight=self.weight,
            quota=self.quota,
            buy=self.may_buy(),
            age_seconds=live.training_seconds if live else 0.0,
            resizes=live.resizes if live else 0,
            since_resize_seconds=now - max(live.since if live else 0.0, self.note.unix if self.note else 0.0),
        )
        if live and live.resizes and live.pause_seconds:
            stall = live.pause_seconds / live.resizes
            return replace(demand, stall_grow_seconds=stall, stall_shrink_seconds=stall)
        return demand


def _least(workers: "WorkersSpec") -> int:
    floor = max(workers.min, workers.floor)
    return next((size for size in workers.allowed_sizes if size >= floor), floor)


def _ceiling(wanted: str, note: ScalingNote | None, least: int, most: int) -> int | None:
    """A number that the autoscaler did not write is a person's, and counts until the person writes another."""
    said = decimal_count(wanted)
    if said is None or (note is not None and said == note.workers):
        said = note.ceiling if note else None
    return None if said is None or said >= most else max(said, least)
