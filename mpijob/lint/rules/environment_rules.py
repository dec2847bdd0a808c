"""HE8xx: environment that reaches the training processes or does not, and EFA."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from hvd_elastic.mpijob.lint.document.edit import Edit, Insert, Set
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.horovodrun_flags import Launcher
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob, Version
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_EFA: Final = "vpc.amazonaws.com/efa"
_HUGE_PAGES: Final = "hugepages-2Mi"
_EFA_OF: Final = {"p4d": 4, "p4de": 4, "p5": 32, "p5e": 32, "p5en": 16, "p6-b200": 8}
"""Adapters of an instance family's largest size."""
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_HARMLESS: Final = frozenset(
    ("K_MPI_JOB_ROLE", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "DEBIAN_FRONTEND")
)
_READ_AT_IMPORT: Final = frozenset(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES")
)


@rule(
    "HE801",
    "environment-lost-over-ssh",
    Severity.WARNING,
    why="Horovod starts processes over ssh. An ssh session has a bare environment, none of the container's: NCCL_*, "
    "FI_* or AWS_* on a worker have no effect. The launcher's environment is handed on, so they belong there, "
    "secrets excepted.",
    fix="Move them to the launcher; or run `hvd-elastic worker`, whose processes keep the pod's environment.",
    at=At.WORKER,
    bad="command: [/usr/sbin/sshd, -De]\nenv: [{name: NCCL_DEBUG, value: INFO}]",
    good="command: [/usr/sbin/sshd, -De]\nenv: []",
)
def environment_lost_over_ssh(job: LintedJob) -> Iterator[Hit]:
    """Finds variables on workers that the training processes never see."""
    starts_over_ssh = job.elastic or job.call.launcher is Launcher.MPIRUN
    if not starts_over_ssh or job.own_workers or job.version is not Version.V2BETA1:
        return
    known = {view.get("name").text for view in job.launcher.pod.main.view.get("env").items()}
    for variable in job.worker.pod.main.view.get("env").items():
        name = variable.get("name").text
        if name and name not in known and name not in _HARMLESS:
            yield hit(variable, f"{name} is not seen by processes that are started over ssh", *_copy(job, variable))


def _copy(job: LintedJob, variable: View) -> tuple[Edit, ...]:
    """Copies a literal tuning variable to the launcher. What may be a secret is left alone."""
    name, value = variable.get("name").text or "", variable.get("value").text
    environment = job.launcher.pod.main.view.get("env")
    if value is None or not name.startswith(("NCCL_", "FI_", "HOROVOD_", "RDMAV_", "UCX_", "GLOO_")):
        return ()
    entry = {"name": name, "value": value}
    if isinstance(environment.value, list):
        return (Insert(environment.path, len(environment.value), (entry,)),)
    return (Set(environment.path, [entry]),) if job.launcher.pod.main.view.exists else ()


@rule(
    "HE802",
    "read-at-import",
    Severity.WARNING,
    why="The standby of `hvd-elastic worker` has imported torch long before the launcher's environment arrives: "
    "OMP_NUM_THREADS and the like then have no effect.",
    fix="Set them on the workers' container too.",
    at=At.LAUNCHER,
    bad='env: [{name: MKL_NUM_THREADS, value: "4"}, {name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
    good='env: [{name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
)
def read_at_import(job: LintedJob) -> Iterator[Hit]:
    """Finds variables that are read when torch is imported, set only on the launcher of a job with warm workers."""
    if not job.own_workers:
        return
    there = {view.get("name").text for view in job.worker.pod.main.view.get("env").items()}
    for variable in job.launcher.pod.main.view.get("env").items():
        name = variable.get("name").text
        if name in _READ_AT_IMPORT and name not in there:
            yield hit(variable, f"{name} is read at import, before the launcher's environment arrives")


def _efa(job: LintedJob) -> View:
    return job.worker.pod.main.resource(_EFA)


@rule(
    "HE803",
    "efa-unused",
    Severity.WARNING,
    why="Without FI_PROVIDER=efa libfabric may choose sockets: NCCL then runs over TCP at a fraction of the "
    "bandwidth, and nothing says so. RDMAV_FORK_SAFE=1 keeps data loader processes from corrupting registered "
    "memory.",
    fix="Set FI_PROVIDER=efa, FI_EFA_USE_DEVICE_RDMA=1 and RDMAV_FORK_SAFE=1 on the launcher, which hands them on.",
    at=At.WORKER,
    bad="resources: {limits: {cpu: 8, memory: 32Gi, vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5120Mi}}",
    good="resources: {limits: {cpu: 8, memory: 32Gi}}",
)
def efa_unused(job: LintedJob) -> Iterator[Hit]:
    """Finds workers with EFA adapters whose processes are not told to use them."""
    efa = _efa(job)
    environments = [job.launcher.pod.main.environment]
    if job.own_workers:
        environments.append(job.worker.pod.main.environment)
    told = any(environment.get("FI_PROVIDER") == "efa" for environment in environments)
    if efa.amount and not told:
        yield hit(efa, "FI_PROVIDER=efa is not set where the processes see it")


@rule(
    "HE804",
    "too-many-efa",
    Severity.ERROR,
    why="A p4d.24xlarge has 4, a p5.48xlarge 32, a p5en.48xlarge 16, a p6-b200.48xlarge 8. A pod that asks for more "
    "stays Pending for ever, and no autoscaler adds a node for it.",
    fix="Ask for what the instance type has.",
    at=At.WORKER_POD,
    bad="""
spec:
  nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}
  containers:
  - {name: worker, image: example.com/train:1, resources: {limits: {vpc.amazonaws.com/efa: 8}}}
""",
    good="""
spec:
  nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}
  containers:
  - {name: worker, image: example.com/train:1, resources: {limits: {vpc.amazonaws.com/efa: 4}}}
""",
)
def too_many_efa(job: LintedJob) -> Iterator[Hit]:
    """Compares the EFA adapters of a worker with its instance type."""
    efa = _efa(job)
    instance = job.worker.pod.spec.get("nodeSelector", _INSTANCE_TYPE).text or ""
    has = _EFA_OF.get(instance.partition(".")[0])
    if efa.amount is not None and has is not None and efa.amount > Decimal(has):
        yield hit(efa, f"{instance} has {has} adapters")


@rule(
    "HE805",
    "efa-without-huge-pages",
    Severity.WARNING,
    why="The EFA provider allocates its bounce buffers from huge pages; without them it falls back to normal pages, "
    "slower, or does not start.",
    fix="Set `hugepages-2Mi: 5120Mi` in the limits.",
    at=At.WORKER,
    bad="resources: {limits: {cpu: 8, memory: 32Gi, vpc.amazonaws.com/efa: 4}}",
    good="resources: {limits: {cpu: 8, memory: 32Gi, vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5120Mi}}",
)
def efa_without_huge_pages(job: LintedJob) -> Iterator[Hit]:
    """Finds workers with EFA adapters and no huge pages."""
    efa = _efa(job)
    if efa.amount and not job.worker.pod.main.resource(_HUGE_PAGES).exists:
        yield hit(efa, "no hugepages-2Mi")
