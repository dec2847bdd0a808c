"""HE64x: spot and on-demand nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, PodTemplate
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

SPOT_LABELS: Final[Mapping[str, frozenset[str]]] = {
    "eks.amazonaws.com/capacityType": frozenset(("SPOT",)),
    "karpenter.sh/capacity-type": frozenset(("spot",)),
    "cloud.google.com/gke-spot": frozenset(("true",)),
    "cloud.google.com/gke-preemptible": frozenset(("true",)),
    "kubernetes.azure.com/scalesetpriority": frozenset(("spot",)),
}
"""Node labels that mark spot capacity, each with its values for spot."""

_NOTICE_SECONDS: Final = {
    "cloud.google.com/gke-spot": 15,
    "cloud.google.com/gke-preemptible": 15,
    "kubernetes.azure.com/scalesetpriority": 25,
    "eks.amazonaws.com/capacityType": 100,
    "karpenter.sh/capacity-type": 100,
}
"""Longest grace period that a pod gets before its spot machine is gone, by node label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeCondition:
    """One condition that a pod sets on the labels of its node."""

    key: str
    values: frozenset[str]
    wanted: bool
    """False for NotIn and DoesNotExist."""
    required: bool
    view: ManifestView

    @property
    def spot(self) -> bool | None:
        """Whether it selects spot nodes (True) or excludes them (False); None if it concerns other labels."""
        named = SPOT_LABELS.get(self.key)
        if named is None:
            return None
        means_spot = bool(self.values & named) or not self.values
        return means_spot == self.wanted


def _node_conditions(pod: PodTemplate) -> Iterator[_NodeCondition]:
    for key, view in pod.spec.get("nodeSelector").pairs():
        yield _NodeCondition(key=key, values=frozenset((str(view.value),)), wanted=True, required=True, view=view)
    affinity = pod.spec.get("affinity", "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for term in required.items():
        yield from _expressions(term, required=True)
    for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items():
        yield from _expressions(weighted.get("preference"), required=False)


def _expressions(term: ManifestView, *, required: bool) -> Iterator[_NodeCondition]:
    for expression in term.get("matchExpressions").items():
        values = frozenset(str(item.value) for item in expression.get("values").items())
        wanted = expression.get("operator").value in ("In", "Exists")
        key = str(expression.get("key").value)
        yield _NodeCondition(key=key, values=values, wanted=wanted, required=required, view=expression)


def _spot_conditions(pod: PodTemplate) -> list[_NodeCondition]:
    return [condition for condition in _node_conditions(pod) if condition.spot]


@rule(
    "HE641",
    "launcher-on-spot",
    Severity.ERROR,
    why="A spot node can disappear within seconds or minutes. Losing a worker costs a resize; losing the launcher ends "
    "the job.",
    fix="Require on-demand nodes for the launcher; use spot nodes for workers only.",
    part=ManifestPart.LAUNCHER_POD,
    bad="spec: {affinity: null, nodeSelector: {karpenter.sh/capacity-type: spot}}",
    good="spec: {affinity: null, nodeSelector: {karpenter.sh/capacity-type: on-demand}}",
)
def launcher_on_spot(job: LintedJob) -> Iterator[Violation]:
    """Finds launchers that are placed on spot nodes."""
    for condition in _spot_conditions(job.launcher.pod):
        if job.elastic:
            yield violation(condition.view, "the launcher requests a spot node, and the job ends when that node does")


@rule(
    "HE642",
    "launcher-may-land-on-spot",
    Severity.WARNING,
    why="Only AKS taints its spot nodes by itself. Elsewhere the scheduler puts an unconstrained launcher on any node "
    "with room, and the emptiest nodes are those that workers have just been taken from.",
    fix="Require the on-demand label of your cloud in the launcher's node affinity, and tolerate spot taints on "
    "workers only.",
    part=ManifestPart.JOB,
    bad="""
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {affinity: null, nodeSelector: null}}}
    Worker: {template: {spec: {nodeSelector: {eks.amazonaws.com/capacityType: SPOT}}}}
""",
    good="""
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {nodeSelector: {eks.amazonaws.com/capacityType: ON_DEMAND}}}}
    Worker: {template: {spec: {nodeSelector: {eks.amazonaws.com/capacityType: SPOT}}}}
""",
)
def launcher_may_land_on_spot(job: LintedJob) -> Iterator[Violation]:
    """Finds launchers that nothing keeps off spot nodes, in jobs whose workers use such nodes."""
    tolerated = [t for t in job.launcher.pod.spec.get("tolerations").items() if t.get("key").text in SPOT_LABELS]
    for toleration in tolerated:
        if job.elastic:
            yield violation(toleration, "the launcher tolerates spot nodes")
    kept_off = any(condition.spot is False and condition.required for condition in _node_conditions(job.launcher.pod))
    own_labels = any(condition.required and condition.wanted for condition in _node_conditions(job.launcher.pod))
    spot = _spot_conditions(job.worker.pod)
    tainted = {condition.key for condition in spot} <= {"kubernetes.azure.com/scalesetpriority"}
    if job.elastic and spot and not tainted and not kept_off and not own_labels:
        yield violation(job.launcher.pod.spec.get("affinity"), "nothing keeps the launcher off the workers' spot nodes")


@rule(
    "HE643",
    "untolerated-spot",
    Severity.ERROR,
    keeps_from_starting=True,
    why="AKS taints spot nodes `kubernetes.azure.com/scalesetpriority=spot:NoSchedule`: without a toleration the "
    "workers stay Pending indefinitely.",
    fix="Add a toleration for that taint to the workers.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}, tolerations: []}",
    good="""
spec:
  nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}
  tolerations: [{key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}]
""",
)
def untolerated_spot(job: LintedJob) -> Iterator[Violation]:
    """Finds workers that request AKS spot nodes without tolerating their taint."""
    key = "kubernetes.azure.com/scalesetpriority"
    tolerations = list(job.worker.pod.spec.get("tolerations").items())
    tolerated = any(t.get("key").value in (key, None, "") for t in tolerations)
    for condition in _spot_conditions(job.worker.pod):
        if condition.key == key and condition.required and not tolerated:
            yield violation(condition.view, "AKS taints its spot nodes, and no toleration is set")


@rule(
    "HE644",
    "grace-beyond-notice",
    Severity.WARNING,
    why="GKE ends pods about 15 s after the notice, AKS the machine after about 30 s, EC2 after 2 minutes. The "
    "machine does not honour a longer grace period: a process that relies on it starts a checkpoint that it cannot "
    "finish.",
    fix="Set `terminationGracePeriodSeconds` to at most 15 on GKE spot, 25 on AKS, 100 on EC2.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {nodeSelector: {cloud.google.com/gke-spot: 'true'}, terminationGracePeriodSeconds: 60}",
    good="spec: {nodeSelector: {cloud.google.com/gke-spot: 'true'}, terminationGracePeriodSeconds: 15}",
)
def grace_beyond_notice(job: LintedJob) -> Iterator[Violation]:
    """Compares the workers' grace period with the notice that their spot machines give."""
    field = job.worker.pod.spec.get("terminationGracePeriodSeconds")
    grace = 30 if field.number is None else field.number
    notices = [_NOTICE_SECONDS[condition.key] for condition in _spot_conditions(job.worker.pod)]
    if job.elastic and notices and grace > min(notices):
        yield violation(field, f"the grace period is {grace} s; the machine is gone after {min(notices)} s")
