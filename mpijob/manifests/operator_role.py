"""The one right that the MPI Operator 0.8 lacks: without it a suspended job is never resumed up to Kubernetes 1.35.

From 0.8.0 on the operator clears `status.startTime` of the launcher's Job before it resumes it, by an update of
`jobs/status` (`pkg/controller/mpi_job_controller.go`, `syncHandler`). Its own ClusterRole up to 0.8.2 does not allow
that (`manifests/base/cluster-role.yaml`). 0.6 and 0.7 do not touch the status.

From Kubernetes 1.36 on the Job controller clears the time itself as it suspends a Job (`pkg/controller/job/
job_controller.go`, feature gate MutableSchedulingDirectivesForSuspendedJobs), and the operator has nothing to update.

An operator that was refused must be started again once it has the right: each event of a job that cannot be synced
doubles the time until the next attempt, up to 1,000 s (`workqueueExponentialMaxDelay` there).
"""

from typing import Final

from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, role_and_binding

NAME: Final = "hvd-elastic:mpi-operator-resume"
NAMESPACE: Final = "mpi-operator"
ACCOUNT: Final = "mpi-operator"
"""Where the operator's own manifests put it (`deploy/v2beta1/mpi-operator.yaml`)."""


def manifests(*, namespace: str = NAMESPACE, account: str = ACCOUNT) -> list[Manifest]:
    """A ClusterRole with that right, bound to the operator's ServiceAccount."""
    metadata = {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "hvd-elastic"}}
    rules = [{"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update"]}]
    return role_and_binding(metadata, rules, account=account, namespace=namespace)
