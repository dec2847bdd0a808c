"""All jobs of a namespace or of the cluster, from their MPIJobs alone: one list, whatever their number."""

from collections.abc import Iterable
from dataclasses import dataclass

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.job_lookup import cluster_time, list_jobs_cached
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.job_state import JobState, state_of_listed
from hvd_elastic.client.report.job_status import worker_bounds
from hvd_elastic.discovery.rules.cluster_views import unix_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """One job. The sums are those that its sidecar last told, half a minute old while it trains."""

    namespace: str
    name: str
    state: JobState
    size: int
    """How many workers train."""
    min_workers: int
    max_workers: int
    step: int
    """-1: not known."""
    wall_seconds: float
    """From the job's creation to its end, or until now."""
    training_seconds: float | None
    """How long it trained of that; None, and the same below: the job has no ledger."""
    gpu_seconds: float | None
    lent_gpu_seconds: float | None
    preemptions: int | None
    counts_since: float | None
    """Unix seconds since which these count, because their record was lost; None: since the job began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTotal:
    """What the listed jobs sum up to."""

    jobs: int
    training: int
    """How many train."""
    workers: int
    gpu_seconds: float
    lent_gpu_seconds: float
    preemptions: int


def list_job_states(
    cluster: ClusterClient, namespace: str | None = None, reading: ObjectReading | None = None
) -> list[ListedJob]:
    """The jobs of a namespace, or of all, by namespace and name. Raises ClusterError.

    `reading`: names the MPIJobs that cannot be read, which are left out; by default as a warning of the log.
    """
    now = cluster_time(cluster)
    reading = reading or ObjectReading("MPIJob")
    jobs = reading.each(list_jobs_cached(cluster, namespace), lambda job: listed(job, now))
    return sorted(jobs, key=lambda job: (job.namespace, job.name))


def listed(job: Json, now: float) -> ListedJob:
    """What an MPIJob and its annotations say at `now`, in Unix seconds."""
    live, meta, found = JobFacts(job=job, now=now).live, job["metadata"], state_of_listed(job, now)
    lowest, highest = worker_bounds(job)
    ended = unix_seconds((job.get("status") or {}).get("completionTime")) or now
    return ListedJob(
        namespace=str(meta.get("namespace", "")),
        name=meta["name"],
        state=found.state,
        size=live.workers if live and found.state is JobState.TRAINING else 0,
        min_workers=lowest,
        max_workers=highest,
        step=live.step if live else -1,
        wall_seconds=max(0.0, ended - (unix_seconds(meta.get("creationTimestamp")) or ended)),
        training_seconds=live.training_seconds if live else None,
        gpu_seconds=live.gpu_seconds if live else None,
        lent_gpu_seconds=live.lent_gpu_seconds if live else None,
        preemptions=live.preemptions if live else None,
        counts_since=live.counts_since if live else None,
    )


def total(jobs: Iterable[ListedJob]) -> ListedTotal:
    """The sums over jobs; those without a ledger add nothing to the GPU-seconds."""
    jobs = list(jobs)
    return ListedTotal(
        jobs=len(jobs),
        training=sum(job.state is JobState.TRAINING for job in jobs),
        workers=sum(job.size for job in jobs),
        gpu_seconds=sum(job.gpu_seconds or 0.0 for job in jobs),
        lent_gpu_seconds=sum(job.lent_gpu_seconds or 0.0 for job in jobs),
        preemptions=sum(job.preemptions or 0 for job in jobs),
    )
