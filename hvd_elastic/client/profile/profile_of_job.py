"""The profile of a job in a cluster, from what the job has reported."""

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.operations.submitted_job import SubmittedJob
from hvd_elastic.client.profile.job_profile import JobProfile, batch_of
from hvd_elastic.client.profile.measured_sizes import measured_sizes
from hvd_elastic.client.report.job_facts import JobFactReader
from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.policy.job_speeds import StepBatch


class NotMeasuredError(HvdElasticError):
    """The job has not reported the steps of any size yet."""


def profile_of_job(cluster: ClusterClient, name: str, *, batch: StepBatch | None = None) -> JobProfile:
    """The profile of a job from what it has reported. `batch` overrides that of its description.

    Raises NotMeasuredError; UnknownJobError; ForeignJobError; JobStateError; other ClusterErrors.
    """
    facts = JobFactReader(cluster).read(name, cluster.namespace)
    spec = SubmittedJob.from_json(facts.job).description
    measured = measured_sizes(facts.ledger or (), facts.live)
    if not measured:
        raise NotMeasuredError(
            f"{name} has not reported the steps of any size yet: wait until it has trained for two minutes, or was "
            "resized"
        )
    return JobProfile(
        job=f"{facts.namespace}/{facts.name}",
        min=spec.workers.min,
        max=spec.workers.max,
        batch=batch or batch_of(spec),
        measured=measured,
    )
