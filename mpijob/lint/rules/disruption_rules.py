"""HE6[0-3]x: the ends of pods and jobs: eviction, lost nodes, restarts, clean-up."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME
from hvd_elastic.mpijob.lint.document.edit import Edit, Insert, Set
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob, Version
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LONGEST_SECONDS: Final = 120
_SECONDS: Final = 30


@rule(
    "HE601",
    "evicted-for-good",
    Severity.WARNING,
    why="The operator makes a deleted worker again, but never one in phase Failed (kubelet eviction, GKE spot), and "
    "`Evicted` marks the whole job Failed with no completion time (mpi-operator issue 647, open).",
    fix="Run the discovery sidecar: it deletes Failed workers of its job after recording the reason.",
    at=At.LAUNCHER_POD,
    bad="spec: {initContainers: []}",
    good="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, restartPolicy: Always, command: [hvd-elastic,
    discovery-sidecar]}
""",
)
def evicted_for_good(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs with nothing that deletes Failed workers."""
    if job.elastic and job.version is Version.V2BETA1 and not job.own_discovery:
        yield hit(job.launcher.pod.spec.get("initContainers"), "nothing deletes a worker that was evicted")


@rule(
    "HE602",
    "slow-to-leave-lost-node",
    Severity.WARNING,
    why="Kubernetes adds tolerations of 300 s for not-ready and unreachable nodes. After a link was cut, a worker's "
    "deletion began at +343 s with that default and at +58 s with 15 s (measured): so long no replacement is "
    "made.",
    fix="Add tolerations for node.kubernetes.io/not-ready and unreachable, NoExecute, with tolerationSeconds 30.",
    at=At.WORKER_POD,
    bad="spec: {tolerations: []}",
    good="""
spec:
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
""",
)
def slow_to_leave_lost_node(job: LintedJob) -> Iterator[Hit]:
    """Checks for how long workers stay bound to a node that does not answer."""
    tolerations = job.worker.pod.spec.get("tolerations")
    if not job.elastic or not job.worker.pod.main.view.exists:
        return
    missing = [taint for taint in _LOST_NODE_TAINTS if not any(_tolerates(t, taint) for t in tolerations.items())]
    for entry in tolerations.items():
        seconds = entry.get("tolerationSeconds")
        if (
            any(_tolerates(entry, taint) for taint in _LOST_NODE_TAINTS)
            and not _is_short(seconds)
            and not job.described
        ):
            yield hit(entry, "stays on a lost node for longer than two minutes", Set(seconds.path, _SECONDS))
    if missing:
        message = f"stays on a lost node for 300 s: no toleration with tolerationSeconds for {' and '.join(missing)}"
        yield hit(tolerations, message, *_tolerate(tolerations, missing))


def _tolerates(toleration: View, taint: str) -> bool:
    effect, key = toleration.get("effect").value, toleration.get("key").value
    everything = key in (None, "") and toleration.get("operator").value == "Exists"
    return (key == taint or everything) and effect in (None, "", "NoExecute")


def _is_short(seconds: View) -> bool:
    return seconds.number is not None and seconds.number <= _LONGEST_SECONDS


def _tolerate(tolerations: View, taints: list[str]) -> tuple[Edit, ...]:
    entries = tuple(
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS} for taint in taints
    )
    if isinstance(tolerations.value, list):
        return (Insert(tolerations.path, len(tolerations.value), entries),)
    return (Set(tolerations.path, list(entries)),)


@rule(
    "HE603",
    "pods-left-behind",
    Severity.ERROR,
    why="`cleanPodPolicy` is None unless set. Worker pods run sshd and never end by themselves: the GPUs of a "
    "finished job stay taken until somebody deletes it.",
    fix="Set `cleanPodPolicy: Running` (All removes the launcher's pod, and its log, too).",
    at=At.JOB,
    bad="spec: {runPolicy: {cleanPodPolicy: None}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def pods_left_behind(job: LintedJob) -> Iterator[Hit]:
    """Finds jobs whose workers stay when the job has ended."""
    field = job.spec.get("runPolicy", "cleanPodPolicy")
    at_root = job.spec.get("cleanPodPolicy")
    if at_root.exists:  # v1 has it at both places; in v2beta1 that is HE907
        field = at_root if job.version is Version.V1 else field
        if at_root.value in ("Running", "All"):
            return
    if field.value in (None, "None") and job.spec.exists:
        yield hit(field, "the workers of a finished job keep their GPUs", Set(field.path, "Running"))


@rule(
    "HE604",
    "launcher-dies-once",
    Severity.WARNING,
    why="When the launcher dies the job ends, and on any node that may happen. With `backoffLimit: 0` and "
    "`restartPolicy: Never` its Job fails at the first time; a restart goes on from the durable checkpoint.",
    fix="Set `runPolicy.backoffLimit` to a few restarts.",
    at=At.JOB,
    bad="spec: {runPolicy: {backoffLimit: 0}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}",
    good="spec: {runPolicy: {backoffLimit: 3}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}",
)
def launcher_dies_once(job: LintedJob) -> Iterator[Hit]:
    """Finds elastic jobs whose launcher is never started again."""
    limit = job.spec.get("runPolicy", "backoffLimit")
    if (
        job.elastic
        and not job.described
        and limit.number == 0
        and job.launcher.view.get("restartPolicy").value == "Never"
    ):
        yield hit(limit, "the first death of the launcher ends the job")


@rule(
    "HE605",
    "budget-blocks-drain",
    Severity.WARNING,
    why="A budget does not stop the scheduler's preemption, where it is best effort, but it stops drains: nodes "
    "cannot be emptied or scaled down while the job runs. An elastic job can lose workers down to its minimum.",
    fix="Set `minAvailable` to the minimum of workers.",
    at=At.STREAM,
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
def budget_blocks_drain(job: LintedJob) -> Iterator[Hit]:
    """Finds PodDisruptionBudgets that forbid every eviction of the job's workers."""
    for budget in job.companions.of("PodDisruptionBudget", namespace=job.namespace):
        spec = budget.get("spec")
        if spec.get("selector", "matchLabels", LABEL_JOB_NAME).value != job.name or not job.elastic:
            continue
        low, high = spec.get("minAvailable"), spec.get("maxUnavailable").value
        replicas = job.worker.replicas
        fixed = (job.min_np or 0) >= (job.capacity or 0)
        blocked = low.value == "100%" or (low.number is not None and replicas is not None and low.number >= replicas)
        if high in (0, "0", "0%") or (blocked and not fixed):
            name = budget.get("metadata", "name").value
            yield hit(
                job.view.get("metadata", "name"), f"PodDisruptionBudget {name!r} forbids every eviction of its workers"
            )


@rule(
    "HE606",
    "autoscaled-mpijob",
    Severity.ERROR,
    why="An MPIJob has no scale subresource (mpi-operator issue 336, open): neither an HPA nor `kubectl scale` can "
    "drive it, and the HPA only reports FailedGetScale. PyTorchJob has one.",
    fix="Set the worker replicas to the maximum: the scheduler then does the scaling.",
    at=At.STREAM,
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
def autoscaled_mpijob(job: LintedJob) -> Iterator[Hit]:
    """Finds a HorizontalPodAutoscaler that aims at an MPIJob."""
    for scaler in job.companions.of("HorizontalPodAutoscaler", namespace=job.namespace):
        target = scaler.get("spec", "scaleTargetRef")
        if target.get("kind").value == "MPIJob" and target.get("name").value == job.name:
            name = scaler.get("metadata", "name").value
            yield hit(job.view.get("metadata", "name"), f"HorizontalPodAutoscaler {name!r} cannot scale an MPIJob")
