"""The MPIJob of the MPI Operator 0.6 to 0.8, `kubeflow.org/v2beta1`."""

from collections.abc import Sequence
from typing import Final

from hvd_elastic.mpijob.contract import SSH_FOLDER
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import launcher_pod, worker_pod
from hvd_elastic.mpijob.manifests.job_parts import job_metadata, replicas, run_policy
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.supporting import rbac

_SSH_SECRET_SUFFIX: Final = "-ssh"  # noqa: S105 - the end of a Secret's name
"""The operator makes this Secret for each job (mpi-operator 0.8.2, `pkg/controller/mpi_job_controller.go`,
`sshAuthSecretSuffix`), and mounts it into the workers and the launcher's first container."""


def manifests(spec: JobSpec, *, owned: Sequence[str] = ()) -> list[Manifest]:
    """The MPIJob alone. `owned`: API paths of what its sidecar becomes the owner of."""
    launcher = launcher_pod.template(
        spec, service_account=rbac.name(spec), ssh_secret=f"{spec.name}{_SSH_SECRET_SUFFIX}", owned=owned
    )
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": job_metadata(spec),
        "spec": {
            "slotsPerWorker": spec.workers.slots,
            "sshAuthMountPath": SSH_FOLDER,
            # WaitForWorkersReady would wait for workers.max of them, and idle capacity may not be there for all.
            "launcherCreationPolicy": "AtStartup",
            "runPolicy": run_policy(spec, restarts=spec.restarts),
            "mpiReplicaSpecs": {
                "Launcher": replicas(1, launcher),
                "Worker": replicas(spec.workers.max, worker_pod.template(spec)),
            },
        },
    }
    return [job]
