"""HE60x to HE63x: how pods and jobs end: eviction, lost nodes, restarts, clean-up."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME
from hvd_elastic.mpijob.lint.document.manifest_edit import InsertItems, ManifestEdit, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LONGEST_SECONDS: Final = 120
_SECONDS: Final = 30


@rule(
    "HE601",
    "evicted-for-good",
    Severity.WARNING,
    why="The operator recreates a deleted worker, but never one in phase Failed (kubelet eviction, GKE spot). "
    "`Evicted` also marks the whole job Failed, with no completion time (mpi-operator issue 647, open).",
    fix="Run the discovery sidecar: it deletes Failed workers of its job after it has recorded the reason.",
    part=ManifestPart.LAUNCHER_POD,
    bad="spec: {initContainers: []}",
    good="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, restartPolicy: Always, command: [hvd-elastic,
    discovery-sidecar]}
""",
)
def evicted_for_good(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs in which nothing deletes Failed workers."""
    if job.elastic and job.version is MPIJobVersion.V2BETA1 and not job.has_discovery_sidecar:
        yield violation(job.launcher.pod.spec.get("initContainers"), "nothing deletes a worker that was evicted")


@rule(
    "HE602",
    "slow-to-leave-lost-node",
    Severity.WARNING,
    why="Kubernetes adds tolerations of 300 s for nodes that are not-ready or unreachable. After a link was cut, the "
    "deletion of a worker began at +343 s with that default and at +58 s with 15 s (measured). Until then no "
    "replacement is created.",
    fix="Add tolerations for node.kubernetes.io/not-ready and unreachable, NoExecute, with tolerationSeconds 30.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {tolerations: []}",
    good="""
spec:
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
""",
)
def slow_to_leave_lost_node(job: LintedJob) -> Iterator[Violation]:
    """Checks how long workers stay bound to a node that does not respond."""
    tolerations = job.worker.pod.spec.get("tolerations")
    if not job.elastic or not job.worker.pod.main.view.exists:
        return
    missing = [taint for taint in _LOST_NODE_TAINTS if not any(_tolerates(t, taint) for t in tolerations.items())]
    for entry in tolerations.items():
        seconds = entry.get("tolerationSeconds")
        if (
            any(_tolerates(entry, taint) for taint in _LOST_NODE_TAINTS)
            and not _is_short(seconds)
            and not job.generated
        ):
            yield violation(entry, "stays on a lost node for longer than two minutes", SetValue(seconds.path, _SECONDS))
    if missing:
        message = f"stays on a lost node for 300 s: no toleration with tolerationSeconds for {' and '.join(missing)}"
        yield violation(tolerations, message, *_tolerate(tolerations, missing))


def _tolerates(toleration: ManifestView, taint: str) -> bool:
    effect, key = toleration.get("effect").value, toleration.get("key").value
    everything = key in (None, "") and toleration.get("operator").value == "Exists"
    return (key == taint or everything) and effect in (None, "", "NoExecute")


def _is_short(seconds: ManifestView) -> bool:
    return seconds.number is not None and seconds.number <= _LONGEST_SECONDS


def _tolerate(tolerations: ManifestView, taints: list[str]) -> tuple[ManifestEdit, ...]:
    entries = tuple(
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS} for taint in taints
    )
    if isinstance(tolerations.value, list):
        return (InsertItems(tolerations.path, len(tolerations.value), entries),)
    return (SetValue(tolerations.path, list(entries)),)


@rule(
    "HE603",
    "pods-left-behind",
    Severity.ERROR,
    why="`cleanPodPolicy` is None by default. Worker pods run sshd and never end by themselves: the GPUs of a "
    "finished job stay taken until someone deletes the job.",
    fix="Set `cleanPodPolicy: Running` (All also removes the launcher's pod, and its log with it).",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {cleanPodPolicy: None}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def pods_left_behind(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs whose workers remain after the job has ended."""
    field = job.spec.get("runPolicy", "cleanPodPolicy")
    at_root = job.spec.get("cleanPodPolicy")
    if at_root.exists:  # v1 has it in both places; in v2beta1 HE907 reports it
        field = at_root if job.version is MPIJobVersion.V1 else field
        if at_root.value in ("Running", "All"):
            return
    if field.value in (None, "None") and job.spec.exists:
        yield violation(field, "the workers of a finished job keep their GPUs", SetValue(field.path, "Running"))


@rule(
    "HE604",
    "launcher-dies-once",
    Severity.WARNING,
    why="When the launcher dies, the job ends, and that can happen on any node. With `backoffLimit: 0` and "
    "`restartPolicy: Never` its Job fails at once; a restarted launcher would continue from the durable checkpoint.",
    fix="Set `runPolicy.backoffLimit` to a few restarts.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {backoffLimit: 0}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}",
    good="spec: {runPolicy: {backoffLimit: 3}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}",
)
def launcher_dies_once(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs whose launcher is never restarted."""
    limit = job.spec.get("runPolicy", "backoffLimit")
    if (
        job.elastic
        and not job.generated
        and limit.number == 0
        and job.launcher.view.get("restartPolicy").value == "Never"
    ):
        yield violation(limit, "the job ends when the launcher dies for the first time")


@rule(
    "HE605",
    "budget-blocks-drain",
    Severity.WARNING,
    why="A PodDisruptionBudget does not stop the scheduler's preemption, for which it is only best effort. But it "
    "does stop drains: nodes cannot be emptied or scaled down while the job runs. An elastic job can lose workers "
    "down to its minimum.",
    fix="Set `minAvailable` to the minimum number of workers.",
    part=ManifestPart.RELATED_OBJECT,
    bad="""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: fashion}
spec: {maxUnavailable: 0, selector: {matchLabels: {training.kubeflow.org/job-name: fashion}}}
""",
    good="""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: fashion}
spec: {minAvailable: 1, selector: {matchLabels: {training.kubeflow.org/job-name: fashion}}}
""",
)
def budget_blocks_drain(job: LintedJob) -> Iterator[Violation]:
    """Finds PodDisruptionBudgets that forbid every eviction of the job's workers."""
    for budget in job.related_objects.of_kind("PodDisruptionBudget", namespace=job.namespace):
        spec = budget.get("spec")
        if spec.get("selector", "matchLabels", LABEL_JOB_NAME).value != job.name or not job.elastic:
            continue
        low, high = spec.get("minAvailable"), spec.get("maxUnavailable").value
        replicas = job.worker.replicas
        fixed = (job.min_np or 0) >= (job.capacity or 0)
        blocked = low.value == "100%" or (low.number is not None and replicas is not None and low.number >= replicas)
        if high in (0, "0", "0%") or (blocked and not fixed):
            name = budget.get("metadata", "name").value
            yield violation(
                job.view.get("metadata", "name"), f"PodDisruptionBudget {name!r} forbids every eviction of its workers"
            )


@rule(
    "HE606",
    "autoscaled-mpijob",
    Severity.ERROR,
    why="An MPIJob has no scale subresource (mpi-operator issue 336, open): neither an HPA nor `kubectl scale` can "
    "change its size, and the HPA only reports FailedGetScale. PyTorchJob has one.",
    fix="Set the worker replicas to the maximum: the scheduler then scales the job.",
    part=ManifestPart.RELATED_OBJECT,
    bad="""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: fashion}
spec: {minReplicas: 1, maxReplicas: 8, scaleTargetRef: {apiVersion: kubeflow.org/v2beta1, kind: MPIJob, name: fashion}}
""",
    good="""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: inference}
spec: {minReplicas: 0, maxReplicas: 8, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: inference}}
""",
)
def autoscaled_mpijob(job: LintedJob) -> Iterator[Violation]:
    """Finds a HorizontalPodAutoscaler whose target is an MPIJob."""
    for scaler in job.related_objects.of_kind("HorizontalPodAutoscaler", namespace=job.namespace):
        target = scaler.get("spec", "scaleTargetRef")
        if target.get("kind").value == "MPIJob" and target.get("name").value == job.name:
            name = scaler.get("metadata", "name").value
            yield violation(
                job.view.get("metadata", "name"), f"HorizontalPodAutoscaler {name!r} cannot scale an MPIJob"
            )
