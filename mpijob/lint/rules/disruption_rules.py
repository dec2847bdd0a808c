"""HE60x to HE63x: how pods and jobs end: eviction, lost nodes, restarts, clean-up."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import (
    ENV_OWNED,
    KUEUE_QUEUE,
    LABEL_JOB_NAME,
    LABEL_MANAGED_BY,
    LABEL_PART_OF,
    MANAGED_BY,
)
from hvd_elastic.mpijob.lint.document.manifest_edit import InsertItems, ManifestEdit, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherProgram
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation
from hvd_elastic.mpijob.manifests.supporting import ownership
from hvd_elastic.system.plain_words import count_words

_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LONGEST_SECONDS: Final = 120
_SECONDS: Final = 30
_DEFAULT_BACKOFF_LIMIT: Final = 6
"""Of a batch Job (https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy)."""
_NO_RESTART_IN_V1: Final = (None, "", "Never", "ExitCode")
_NODE_TYPES: Final = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)
"""Node labels of pools that autoscalers grow."""
_BESIDE: Final = {
    "ConfigMap": "configmaps",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ServiceAccount": "serviceaccounts",
}
"""Kinds that a job brings along and that nothing needs once it is gone, with the names of their API paths."""


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
    entries = list(tolerations.items())
    # Of all that tolerate a taint the first counts (Kubernetes' component-helpers, GetMatchingTolerations).
    first = {taint: next((entry for entry in entries if _tolerates(entry, taint)), None) for taint in _LOST_NODE_TAINTS}
    for entry in entries:
        taints = [taint for taint in _LOST_NODE_TAINTS if first[taint] is entry]
        if taints and not _is_short(entry.get("tolerationSeconds")):
            message = "stays on a lost node for longer than two minutes"
            yield violation(entry, message, _shorten(tolerations, entry, taints), choice=True)
    if missing := [taint for taint, entry in first.items() if entry is None]:
        message = f"stays on a lost node for 300 s: no toleration with tolerationSeconds for {' and '.join(missing)}"
        yield violation(tolerations, message, _tolerate(tolerations, missing))


def _tolerates(toleration: ManifestView, taint: str) -> bool:
    effect, key = toleration.get("effect").value, toleration.get("key").value
    everything = key in (None, "") and toleration.get("operator").value == "Exists"
    return (key == taint or everything) and effect in (None, "", "NoExecute")


def _is_short(seconds: ManifestView) -> bool:
    return seconds.number is not None and seconds.number <= _LONGEST_SECONDS


def _shorten(tolerations: ManifestView, entry: ManifestView, taints: list[str]) -> ManifestEdit:
    """One without an effect may have no tolerationSeconds, and tolerates more than lost nodes: it stays as it is."""
    if entry.get("effect").value == "NoExecute":
        return SetValue(entry.get("tolerationSeconds").path, _SECONDS)
    return InsertItems(tolerations.path, 0, _bounded(taints))


def _tolerate(tolerations: ManifestView, taints: list[str]) -> ManifestEdit:
    if isinstance(tolerations.value, list):
        return InsertItems(tolerations.path, len(tolerations.value), _bounded(taints))
    return SetValue(tolerations.path, list(_bounded(taints)))


def _bounded(taints: list[str]) -> tuple[dict[str, object], ...]:
    return tuple(
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS} for taint in taints
    )


@rule(
    "HE603",
    "pods-left-behind",
    Severity.ERROR,
    why="`cleanPodPolicy` is None by default. Worker pods run sshd and never end by themselves: the GPUs of a "
    "finished job stay taken until someone deletes the job.",
    # v2beta1: mpi-operator 0.8.2, pkg/controller/mpi_job_controller.go, deleteWorkerPods, deletes workers alone; with
    # Running it keeps those that are neither Running nor Pending. v1: training-operator 1.8.1,
    # pkg/controller.v1/common/job.go, DeletePodsAndServices, deletes all pods of the job.
    fix="In v2beta1 set `cleanPodPolicy: All`: it removes the workers, evicted ones too, which Running keeps. The "
    "launcher's pod belongs to a batch Job, and stays with its log in either case, until `ttlSecondsAfterFinished`. In "
    "v1 set Running: there All removes the launcher's pod as well, and its log with it.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {cleanPodPolicy: None}}",
    good="spec: {runPolicy: {cleanPodPolicy: All}}",
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
        policy = "Running" if job.version is MPIJobVersion.V1 else "All"
        yield violation(field, "the workers of a finished job keep their GPUs", SetValue(field.path, policy))


@rule(
    "HE604",
    "launcher-dies-once",
    Severity.WARNING,
    why="When the launcher dies, the job ends, and that can happen on any node. With `backoffLimit: 0` and "
    "`restartPolicy: Never` its Job fails at once, and so does a job of v1 whose launcher has another policy than "
    "OnFailure. A restarted launcher would continue from the durable checkpoint.",
    fix="Set `runPolicy.backoffLimit` to a few restarts; in v1 also the launcher's `restartPolicy: OnFailure`.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {backoffLimit: 0}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}",
    good="spec: {runPolicy: {backoffLimit: 3}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}",
)
def launcher_dies_once(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs whose launcher is never restarted."""
    limit, policy = job.spec.get("runPolicy", "backoffLimit"), job.launcher.view.get("restartPolicy")
    message = "the job ends when the launcher dies for the first time"
    if job.elastic and limit.number == 0 and policy.value == "Never":
        yield violation(limit, message, choice=True)
    elif job.elastic and not limit.number and job.version is MPIJobVersion.V1 and policy.value in _NO_RESTART_IN_V1:
        yield violation(policy, message, choice=True)  # with a limit, HE611 says it


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


@rule(
    "HE607",
    "taken-launcher-spends-restarts",
    Severity.WARNING,
    why="The launcher's batch Job counts every launcher that is drained, evicted or preempted against `backoffLimit`, "
    "as if it had failed by itself, and an MPIJob cannot carry the podFailurePolicy that would leave them out. After a "
    "few upgrades of nodes a healthy job is marked Failed.",
    fix="Run the discovery sidecar: it raises the Job's limit by each launcher that was taken away.",
    part=ManifestPart.LAUNCHER_POD,
    bad="spec: {initContainers: []}",
    good="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, restartPolicy: Always, command: [hvd-elastic,
    discovery-sidecar]}
""",
)
def taken_launcher_spends_restarts(job: LintedJob) -> Iterator[Violation]:
    """Finds elastic jobs in which a launcher that others took away uses up a restart."""
    if not job.elastic or job.version is not MPIJobVersion.V2BETA1 or job.has_discovery_sidecar:
        return
    limit = job.spec.get("runPolicy", "backoffLimit")
    restarts = _DEFAULT_BACKOFF_LIMIT if limit.number is None else limit.number
    yield violation(limit, f"a launcher that is drained, evicted or preempted uses up one of {restarts} restarts")


@rule(
    "HE608",
    "suspend-needs-right",
    Severity.INFO,
    why="Up to Kubernetes 1.35 the MPI Operator from 0.8.0 to 0.8.2 has to clear the start time of the launcher's Job "
    "before it resumes it, and its own ClusterRole does not let it update `jobs/status`. A job that was suspended "
    "never gets a launcher again: its workers run and hold their GPUs. Kueue suspends a whole job in its queue.",
    fix="Once per cluster: `hvd-elastic operator-role | kubectl apply -f -`, then restart the operator. If the cluster "
    "has it, a later version, or another operator, silence the rule and give that reason; `hvd-elastic doctor` looks.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {suspend: true}}",
    good="spec: {runPolicy: {suspend: null}}",
)
def suspend_needs_right(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs that will be resumed, without the right that the MPI Operator 0.8 needs for it in these files."""
    suspend = job.spec.get("runPolicy", "suspend")
    queue = job.view.get("metadata", "labels", KUEUE_QUEUE)
    reason = suspend if suspend.value is True else queue
    if job.version is MPIJobVersion.V2BETA1 and reason.exists and not _may_resume(job):
        yield violation(reason, "the MPI Operator 0.8 lacks the right to resume this job")


def _may_resume(job: LintedJob) -> bool:
    """Whether a role of the files allows somebody to update the status of batch Jobs."""
    return any(
        {"update", "*"} & _texts(entry.get("verbs"))
        and {"jobs/status", "*/status", "*"} & _texts(entry.get("resources"))
        for role in job.related_objects.of_kind("ClusterRole", "Role")
        for entry in role.get("rules").items()
    )


def _texts(view: ManifestView) -> set[str]:
    return {item.text for item in view.items() if item.text}


@rule(
    "HE609",
    "finished-job-stays",
    Severity.INFO,
    why="A finished MPIJob stays until someone deletes it, and with it the pod of its launcher, its Service, its "
    "ConfigMap and the Secret with its ssh key. Thousands of them slow the API server and hide the jobs that run.",
    fix="Set `runPolicy.ttlSecondsAfterFinished` to how long the launcher's log is needed: 604800 is a week.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {ttlSecondsAfterFinished: null}}",
    good="spec: {runPolicy: {ttlSecondsAfterFinished: 604800}}",
)
def finished_job_stays(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs that nothing deletes once they have finished."""
    seconds = job.spec.get("runPolicy", "ttlSecondsAfterFinished")
    if job.spec.exists and not seconds.exists:
        yield violation(seconds, "the finished job stays until someone deletes it", choice=True)


@rule(
    "HE610",
    "objects-left-behind",
    Severity.INFO,
    why="When a job is deleted, or its time after the end is over, Kubernetes deletes what it owns. A Role or a "
    "NetworkPolicy that was applied beside it has no owner: it stays, and the next job of that name meets it.",
    fix="Run the discovery sidecar with HVD_ELASTIC_OWNED, the API paths of these objects: it makes the job their "
    "owner. `hvd-elastic generate` writes it. Role and RoleBinding are not for the sidecar: `hvd-elastic submit` makes "
    "the job their owner, and `hvd-elastic delete` finds those with the labels of `generate`. Or delete them by hand.",
    part=ManifestPart.RELATED_OBJECT,
    bad="""
apiVersion: v1
kind: ConfigMap
metadata: {name: fashion-scripts}
""",
    good="""
apiVersion: v1
kind: ConfigMap
metadata:
  name: fashion-scripts
  ownerReferences: [{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, name: fashion, uid: 8e5b}]
""",
)
def objects_left_behind(job: LintedJob) -> Iterator[Violation]:
    """Finds objects that are named after the job and do not go with it."""
    owned = [path for container in job.launcher.pod.init for path in container.environment.get(ENV_OWNED, "").split()]
    left = [
        f"{kind} {name}"
        for kind, plural in _BESIDE.items()
        for view in job.related_objects.of_kind(kind, namespace=job.namespace)
        if _is_named_after(job, name := view.get("metadata", "name").text or "")
        and not view.get("metadata", "ownerReferences").exists
        and not any(path.endswith(f"/namespaces/{job.namespace}/{plural}/{name}") for path in owned)
        and not (kind in ownership.RIGHTS and _has_labels_of(job, view))
    ]
    if left:
        message = f"{', '.join(left)} will stay when the job is deleted"
        yield violation(job.view.get("metadata", "name"), message, choice=True)


def _has_labels_of(job: LintedJob, view: ManifestView) -> bool:
    """Whether `hvd-elastic delete` finds an object, and `doctor` when the job is gone."""
    labels = view.get("metadata", "labels")
    return labels.get(LABEL_MANAGED_BY).value == MANAGED_BY and labels.get(LABEL_PART_OF).value == job.name


def _is_named_after(job: LintedJob, name: str) -> bool:
    """Whether an object belongs to this job by its name, and not to another whose name begins alike."""
    names = [other.name for other in (job, *job.other_jobs) if name == other.name or name.startswith(f"{other.name}-")]
    return bool(job.name) and max(names, key=len, default="") == job.name


@rule(
    "HE611",
    "restarts-without-effect",
    Severity.WARNING,
    # training-operator 1.8.1: pkg/core/job.go, PastBackoffLimit, counts restarts of containers alone;
    # mpijob_controller.go, ReconcilePods, leaves a launcher that failed as it is. trainer issue 1768, mpi-operator 651.
    why="The operator of v1 never creates a launcher anew. `backoffLimit` counts the restarts of its containers, which "
    "the kubelet makes with OnFailure alone. With Never, which is the default, and with ExitCode, which becomes Never, "
    "the first failure of the launcher ends the job, or leaves it Restarting.",
    fix="Set `restartPolicy: OnFailure` on the launcher, or use kubeflow.org/v2beta1.",
    part=ManifestPart.JOB,
    bad="""
apiVersion: kubeflow.org/v1
spec: {runPolicy: {backoffLimit: 3}, mpiReplicaSpecs: {Launcher: {restartPolicy: Never}}}
""",
    good="""
apiVersion: kubeflow.org/v1
spec: {runPolicy: {backoffLimit: 3}, mpiReplicaSpecs: {Launcher: {restartPolicy: OnFailure}}}
""",
)
def restarts_without_effect(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs of v1 with restarts that their launcher's policy never uses."""
    limit, policy = job.spec.get("runPolicy", "backoffLimit"), job.launcher.view.get("restartPolicy")
    if job.version is MPIJobVersion.V1 and limit.number and policy.value in _NO_RESTART_IN_V1:
        yield violation(limit, f"with restartPolicy {policy.text or 'Never'} the launcher is never restarted")


@rule(
    "HE612",
    "restarts-before-nodes",
    Severity.WARNING,
    why="The launcher of a static job fails until every worker answers, and each failure is one of its restarts: six, "
    "some ten minutes, if `backoffLimit` is not set. Nodes of a certain type often come later than that from an "
    "autoscaler, and the job is marked Failed before it could begin.",
    fix="Set `launcherCreationPolicy: WaitForWorkersReady` and a readiness probe of the workers' sshd, or raise "
    "`runPolicy.backoffLimit`.",
    part=ManifestPart.JOB,
    bad="""
spec:
  runPolicy: {backoffLimit: null}
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: launcher, command: [mpirun], args: [./a]}]}}}
    Worker: {template: {spec: {nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}}}}
""",
    good="""
spec:
  launcherCreationPolicy: WaitForWorkersReady
  runPolicy: {backoffLimit: null}
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: launcher, command: [mpirun], args: [./a]}]}}}
    Worker: {template: {spec: {nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}}}}
""",
)
def restarts_before_nodes(job: LintedJob) -> Iterator[Violation]:
    """Finds static jobs on nodes of a certain type whose launcher may use up its restarts before these come."""
    limit = job.spec.get("runPolicy", "backoffLimit")
    waits = job.spec.get("launcherCreationPolicy").value == "WaitForWorkersReady"
    static = not job.elastic and job.command_line.program is not LauncherProgram.OTHER
    few = limit.number is None or limit.number <= _DEFAULT_BACKOFF_LIMIT
    typed = any(job.worker.pod.spec.get("nodeSelector", key).exists for key in _NODE_TYPES)
    if job.version is MPIJobVersion.V2BETA1 and static and few and typed and not waits:
        number = _DEFAULT_BACKOFF_LIMIT if limit.number is None else limit.number
        yield violation(limit, f"{count_words(number, 'restart')} may be used up before the workers' nodes come")
