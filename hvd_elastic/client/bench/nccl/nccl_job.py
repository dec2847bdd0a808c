"""The MPIJob that runs nccl-tests' `all_reduce_perf` where the workers of a job would run.

It is not elastic: Open MPI starts one rank for each GPU once all workers are there. The pods are placed, limited and
secured as those of the job, of whose manifests this has the parts.
"""

from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.checks import size_checks
from hvd_elastic.mpijob.contract import SSH_FOLDER, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import node_placement, pod_environment, queues, worker_pod
from hvd_elastic.mpijob.manifests.job_parts import replicas
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, without_empty
from hvd_elastic.mpijob.manifests.pod_parts import (
    container_env,
    container_security,
    pod_security,
    pod_template,
    scratch_mounts,
    scratch_volumes,
)
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

SUFFIX: Final = "-nccl"
_SSHD: Final = ("/usr/sbin/sshd", "-De")
"""What the operator has workers run that name no command (mpi-operator 0.8.2, `newWorker` in
`pkg/controller/mpi_job_controller.go`), in the foreground."""
_SHM: Final = "shm"
_KEEP_SECONDS: Final = 3600
"""For the log to be read."""
_FORWARDED: Final = ("PATH", "LD_LIBRARY_PATH")
"""Beside the environment of the pods: a session of sshd has none of the image's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRun:
    """What `all_reduce_perf` is to do."""

    smallest: int = 1024
    """Bytes of the first message; each is twice as large as the one before."""
    largest: int = 1024**3
    iterations: int = 20
    warm_up: int = 5
    program: str = "all_reduce_perf"
    """Path in the image; of a build with MPI=1."""


def nccl_job(spec: JobSpec, run: NcclRun) -> Manifest:
    """The MPIJob, v2beta1, with `workers.max` workers. Raises InvalidInputError: no image, no GPUs, or one of them."""
    bench = spec.model_copy(update={"name": f"{spec.name}{SUFFIX}"})
    if problems := [*_problems(spec), *size_checks.problems(bench)]:  # the longer name may be too long
        raise InvalidInputError(problems)
    workers = bench.workers
    gang = without_empty(
        minAvailable=workers.max + 1,
        queue=queues.scheduling_policy(bench).get("queue"),
        priorityClass=bench.priority.workers,
    )
    own = metadata(bench, bench.name)
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {**own, "labels": {**own["labels"], **queues.job_labels(bench)}},
        "spec": {
            "slotsPerWorker": workers.gpus,
            "sshAuthMountPath": SSH_FOLDER,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "ttlSecondsAfterFinished": _KEEP_SECONDS,
                "backoffLimit": 0,
                "schedulingPolicy": gang,
            },
            "mpiReplicaSpecs": {
                "Launcher": replicas(1, _launcher(bench, run)),
                "Worker": replicas(workers.max, _worker(bench)),
            },
        },
    }


def mpirun(spec: JobSpec, run: NcclRun) -> list[str]:
    """The command: one rank for each GPU. Open MPI itself talks TCP; NCCL chooses its network alone."""
    workers = spec.workers
    forwarded = [word for name in (*_FORWARDED, *_environment(spec)) for word in ("-x", name)]
    network = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", spec.network.interface]
    sizes = ["-b", str(run.smallest), "-e", str(run.largest), "-f", "2"]
    counts = ["-g", "1", "-n", str(run.iterations), "-w", str(run.warm_up)]
    ranks = ["-np", str(workers.max * workers.gpus), "--map-by", "slot", "--bind-to", "none"]
    return ["mpirun", *ranks, *network, *forwarded, run.program, *sizes, *counts]


def _problems(spec: JobSpec) -> list[Problem]:
    found = []
    if spec.image is None:
        way_out = "name one that has nccl-tests (built with MPI=1), Open MPI and sshd"
        found.append(Problem(path="image", value=..., what="is missing", way_out=way_out))
    if spec.workers.gpus == 0:
        way_out = "set workers.gpus, or use hvd-elastic bench allreduce"
        found.append(Problem(path="workers.gpus", value=0, what="NCCL needs GPUs", way_out=way_out))
    elif spec.workers.max * spec.workers.gpus == 1:
        way_out = "set workers.max to 2 or more"
        found.append(Problem(path="workers.max", value=1, what="one GPU has nobody to send to", way_out=way_out))
    return found


def _environment(spec: JobSpec) -> dict[str, str]:
    """NCCL's own settings in the job, and its log. The user's own values win, but for the log, which is read."""
    values = {**pod_environment.training(spec), "NCCL_DEBUG": "INFO"}
    return {name: value for name, value in values.items() if name.startswith(("NCCL_", "FI_", "RDMAV_"))}


def _launcher(spec: JobSpec, run: NcclRun) -> Manifest:
    container = without_empty(
        name="launcher",
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=mpirun(spec, run),
        env=container_env(_environment(spec)),
        resources={
            "requests": {"cpu": spec.launcher.cpu, "memory": spec.launcher.memory},
            "limits": {"memory": spec.launcher.memory},
        },
        securityContext=container_security(),
        volumeMounts=scratch_mounts(),
    )
    return pod_template(spec, Role.LAUNCHER, _pod(container, scratch_volumes()))


def _worker(spec: JobSpec) -> Manifest:
    container = without_empty(
        name="worker",
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=list(_SSHD),
        env=container_env(_environment(spec)),
        resources=worker_pod.resources(spec),
        securityContext=container_security(),
        volumeMounts=[*scratch_mounts(), {"name": _SHM, "mountPath": "/dev/shm"}],  # noqa: S108 - in the container
    )
    shm = {"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": spec.workers.shm}}
    pod = _pod(container, [*scratch_volumes(), shm])
    return pod_template(spec, Role.WORKER, {**pod, "terminationGracePeriodSeconds": node_placement.grace_seconds(spec)})


def _pod(container: Manifest, volumes: list[Manifest]) -> Manifest:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(shared_group=False),
        "containers": [container],
        "volumes": volumes,
    }
