"""The profile of a job in a cluster, from what the job has reported."""

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.operations.submitted_job import SubmittedJob
from hvd_elastic.client.profile.job_profile import JobProfile, batch_of
from hvd_elastic.client.profile.measured_sizes import measured_sizes, why_unmeasured
from hvd_elastic.client.report.job_facts import JobFactReader
from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.policy.job_speeds import StepBatch


class NotMeasuredError(HvdElasticError):
    """The steps of no size are known; the message says why, and what to do."""


def profile_of_job(cluster: ClusterClient, name: str, *, batch: StepBatch | None = None) -> JobProfile:
    """The profile of a job from what it has reported. `batch` overrides that of its description.

    Raises NotMeasuredError; UnknownJobError; ForeignJobError; JobStateError; other ClusterErrors.
    """
    facts = JobFactReader(cluster).read(name, cluster.namespace)
    spec = SubmittedJob.from_json(facts.job).description
    measured = measured_sizes(facts.ledger or (), facts.live)
    if not measured:
        if facts.ledger is None:
            why = "; ".join(facts.unreadable) or "it has no ledger, which is what is read: submit it again to get one"
        else:
            why = why_unmeasured(facts.ledger, facts.live)
        raise NotMeasuredError(f"no size of {name} was measured: {why}")
    return JobProfile(
        job=f"{facts.namespace}/{facts.name}",
        min=spec.workers.min,
        max=spec.workers.max,
        batch=batch or batch_of(spec),
        measured=measured,
    )
