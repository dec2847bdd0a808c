"""HE8xx: environment variables that do not reach the training processes, and EFA."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from hvd_elastic.mpijob.clouds.machine_types import efa_adapters
from hvd_elastic.mpijob.lint.document.manifest_edit import InsertItems, ManifestEdit, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherProgram
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation
from hvd_elastic.system.plain_words import count_words

_EFA: Final = "vpc.amazonaws.com/efa"
_HUGE_PAGES: Final = "hugepages-2Mi"
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
    why="Horovod starts processes over ssh. An ssh session has a minimal environment without the container's "
    "variables, so NCCL_*, FI_* or AWS_* on a worker have no effect. The launcher's environment is passed on, so the "
    "variables belong there, except secrets.",
    fix="Move them to the launcher, or run `hvd-elastic worker`, whose processes keep the pod's environment.",
    part=ManifestPart.WORKER,
    bad="command: [/usr/sbin/sshd, -De]\nenv: [{name: NCCL_DEBUG, value: INFO}]",
    good="command: [/usr/sbin/sshd, -De]\nenv: []",
)
def environment_lost_over_ssh(job: LintedJob) -> Iterator[Violation]:
    """Finds variables on workers that the training processes never see."""
    starts_over_ssh = job.elastic or job.command_line.program is LauncherProgram.MPIRUN
    if not starts_over_ssh or job.runs_worker_entry_point or job.version is not MPIJobVersion.V2BETA1:
        return
    known = {view.get("name").text for view in job.launcher.pod.main.view.get("env").items()}
    for variable in job.worker.pod.main.view.get("env").items():
        name = variable.get("name").text
        if name and name not in known and name not in _HARMLESS:
            yield violation(
                variable, f"{name} does not reach processes that are started over ssh", *_copy(job, variable)
            )


def _copy(job: LintedJob, variable: ManifestView) -> tuple[ManifestEdit, ...]:
    """Copies a literal tuning variable to the launcher. A variable that may be a secret is not copied."""
    name, value = variable.get("name").text or "", variable.get("value").text
    environment = job.launcher.pod.main.view.get("env")
    if value is None or not name.startswith(("NCCL_", "FI_", "HOROVOD_", "RDMAV_", "UCX_", "GLOO_")):
        return ()
    entry = {"name": name, "value": value}
    if isinstance(environment.value, list):
        return (InsertItems(environment.path, len(environment.value), (entry,)),)
    return (SetValue(environment.path, [entry]),) if job.launcher.pod.main.view.exists else ()


@rule(
    "HE802",
    "read-at-import",
    Severity.WARNING,
    why="The standby process of `hvd-elastic worker` imports torch long before the launcher's environment arrives: by "
    "then OMP_NUM_THREADS and similar variables have no effect.",
    fix="Set them on the workers' container too.",
    part=ManifestPart.LAUNCHER,
    bad='env: [{name: MKL_NUM_THREADS, value: "4"}, {name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
    good='env: [{name: HOROVOD_GLOO_TIMEOUT_SECONDS, value: "30"}]',
)
def read_at_import(job: LintedJob) -> Iterator[Violation]:
    """Finds variables that torch reads when it is imported, set only on the launcher of a job whose workers keep a
    standby process.
    """
    if not job.runs_worker_entry_point:
        return
    there = {view.get("name").text for view in job.worker.pod.main.view.get("env").items()}
    for variable in job.launcher.pod.main.view.get("env").items():
        name = variable.get("name").text
        if name in _READ_AT_IMPORT and name not in there:
            yield violation(variable, f"{name} is read at import, before the launcher's environment arrives")


def _efa(job: LintedJob) -> ManifestView:
    return job.worker.pod.main.resource(_EFA)


@rule(
    "HE803",
    "efa-unused",
    Severity.WARNING,
    why="Without FI_PROVIDER=efa, libfabric may choose sockets: NCCL then silently runs over TCP at a fraction of the "
    "bandwidth.",
    fix="Set FI_PROVIDER=efa and FI_EFA_USE_DEVICE_RDMA=1 on the launcher, which passes them on.",
    part=ManifestPart.WORKER,
    bad="resources: {limits: {cpu: 8, memory: 32Gi, vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5120Mi}}",
    good="resources: {limits: {cpu: 8, memory: 32Gi}}",
)
def efa_unused(job: LintedJob) -> Iterator[Violation]:
    """Finds workers with EFA adapters whose processes are not configured to use them."""
    efa = _efa(job)
    environments = [job.launcher.pod.main.environment]
    if job.runs_worker_entry_point:
        environments.append(job.worker.pod.main.environment)
    configured = any(environment.get("FI_PROVIDER") == "efa" for environment in environments)
    if efa.amount and not configured:
        yield violation(efa, "FI_PROVIDER=efa is not set in the processes' environment")


@rule(
    "HE804",
    "too-many-efa",
    Severity.ERROR,
    keeps_from_starting=True,
    why="A p4d.24xlarge has 4 EFA adapters, a p5.48xlarge 32, a p5en.48xlarge 16, a p6-b200.48xlarge 8. A pod that "
    "requests more stays Pending indefinitely, and no autoscaler adds a node for it.",
    fix="Request at most as many adapters as the instance type has.",
    part=ManifestPart.WORKER_POD,
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
def too_many_efa(job: LintedJob) -> Iterator[Violation]:
    """Compares the EFA adapters that a worker requests with those of its instance type."""
    efa = _efa(job)
    instance = job.worker.pod.spec.get("nodeSelector", _INSTANCE_TYPE).text or ""
    has = efa_adapters().get(instance)
    if efa.amount is not None and has is not None and efa.amount > Decimal(has):
        yield violation(efa, f"{instance} has {count_words(has, 'adapter')}")


@rule(
    "HE805",
    "efa-without-huge-pages",
    Severity.WARNING,
    why="The EFA provider allocates its bounce buffers from huge pages. Without them it falls back to normal pages, "
    "which are slower, or does not start.",
    fix="Set `hugepages-2Mi: 5120Mi` in the limits.",
    part=ManifestPart.WORKER,
    bad="resources: {limits: {cpu: 8, memory: 32Gi, vpc.amazonaws.com/efa: 4}}",
    good="resources: {limits: {cpu: 8, memory: 32Gi, vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5120Mi}}",
)
def efa_without_huge_pages(job: LintedJob) -> Iterator[Violation]:
    """Finds workers with EFA adapters but no huge pages."""
    efa = _efa(job)
    if efa.amount and not job.worker.pod.main.resource(_HUGE_PAGES).exists:
        yield violation(efa, "no hugepages-2Mi")
