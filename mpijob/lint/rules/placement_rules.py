"""HE64x: spot and on-demand nodes, their notices, zones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob, Pod
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

SPOT_LABELS: Final[Mapping[str, frozenset[str]]] = {
    "eks.amazonaws.com/capacityType": frozenset(("SPOT",)),
    "karpenter.sh/capacity-type": frozenset(("spot",)),
    "cloud.google.com/gke-spot": frozenset(("true",)),
    "cloud.google.com/gke-preemptible": frozenset(("true",)),
    "kubernetes.azure.com/scalesetpriority": frozenset(("spot",)),
}
"""Node labels of spot capacity, and the values that say so."""

_NOTICE_SECONDS: Final = {
    "cloud.google.com/gke-spot": 15,
    "cloud.google.com/gke-preemptible": 15,
    "kubernetes.azure.com/scalesetpriority": 25,
    "eks.amazonaws.com/capacityType": 100,
    "karpenter.sh/capacity-type": 100,
}
"""Longest grace that a pod gets before its spot machine is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """One condition that a pod puts on its node's labels."""

    key: str
    values: frozenset[str]
    wanted: bool
    """False for NotIn and DoesNotExist."""
    required: bool
    view: View

    @property
    def spot(self) -> bool | None:
        """Whether it asks for spot; None where it says nothing about that."""
        named = SPOT_LABELS.get(self.key)
        if named is None:
            return None
        means_spot = bool(self.values & named) or not self.values
        return means_spot == self.wanted


def _wishes(pod: Pod) -> Iterator[_Wish]:
    for key, view in pod.spec.get("nodeSelector").pairs():
        yield _Wish(key=key, values=frozenset((str(view.value),)), wanted=True, required=True, view=view)
    affinity = pod.spec.get("affinity", "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for term in required.items():
        yield from _expressions(term, required=True)
    for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items():
        yield from _expressions(weighted.get("preference"), required=False)


def _expressions(term: View, *, required: bool) -> Iterator[_Wish]:
    for expression in term.get("matchExpressions").items():
        values = frozenset(str(item.value) for item in expression.get("values").items())
        wanted = expression.get("operator").value in ("In", "Exists")
        key = str(expression.get("key").value)
        yield _Wish(key=key, values=values, wanted=wanted, required=required, view=expression)


def _spot_wishes(pod: Pod) -> list[_Wish]:
    return [wish for wish in _wishes(pod) if wish.spot]


@rule(
    "HE641",
    "launcher-on-spot",
    Severity.ERROR,
    why="A spot node goes within seconds or minutes. Losing a worker costs a resize; losing the launcher ends the job.",
    fix="Require on-demand nodes for the launcher; spot for workers only.",
    at=At.LAUNCHER_POD,
    bad="spec: {affinity: null, nodeSelector: {karpenter.sh/capacity-type: spot}}",
    good="spec: {affinity: null, nodeSelector: {karpenter.sh/capacity-type: on-demand}}",
)
def launcher_on_spot(job: LintedJob) -> Iterator[Hit]:
    """Finds launchers that are placed on spot nodes."""
    for wish in _spot_wishes(job.launcher.pod):
        if job.elastic:
            yield hit(wish.view, "the launcher asks for a spot node; the job ends with it")


@rule(
    "HE642",
    "launcher-may-land-on-spot",
    Severity.WARNING,
    why="Only AKS taints its spot nodes by itself. Elsewhere the scheduler puts a launcher without a wish on any node "
    "with room, and the emptiest are those that workers have just been taken from.",
    fix="Require the on-demand label of your cloud in the launcher's node affinity, and tolerate spot taints on "
    "workers only.",
    at=At.JOB,
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
def launcher_may_land_on_spot(job: LintedJob) -> Iterator[Hit]:
    """Finds launchers that nothing keeps off spot nodes, in jobs whose workers use them."""
    tolerated = [t for t in job.launcher.pod.spec.get("tolerations").items() if t.get("key").text in SPOT_LABELS]
    for toleration in tolerated:
        if job.elastic:
            yield hit(toleration, "the launcher tolerates spot nodes")
    kept_off = any(wish.spot is False and wish.required for wish in _wishes(job.launcher.pod))
    own_labels = any(wish.required and wish.wanted for wish in _wishes(job.launcher.pod))
    spot = _spot_wishes(job.worker.pod)
    tainted = {wish.key for wish in spot} <= {"kubernetes.azure.com/scalesetpriority"}
    if job.elastic and spot and not tainted and not kept_off and not own_labels:
        yield hit(job.launcher.pod.spec.get("affinity"), "nothing keeps the launcher off the workers' spot nodes")


@rule(
    "HE643",
    "untolerated-spot",
    Severity.ERROR,
    why="AKS taints spot nodes `kubernetes.azure.com/scalesetpriority=spot:NoSchedule`: the workers stay Pending for "
    "ever.",
    fix="Add a toleration for that taint to the workers.",
    at=At.WORKER_POD,
    bad="spec: {nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}, tolerations: []}",
    good="""
spec:
  nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}
  tolerations: [{key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}]
""",
)
def untolerated_spot(job: LintedJob) -> Iterator[Hit]:
    """Finds workers that ask for AKS spot nodes without tolerating their taint."""
    key = "kubernetes.azure.com/scalesetpriority"
    tolerations = list(job.worker.pod.spec.get("tolerations").items())
    tolerated = any(t.get("key").value in (key, None, "") for t in tolerations)
    for wish in _spot_wishes(job.worker.pod):
        if wish.key == key and wish.required and not tolerated:
            yield hit(wish.view, "AKS spot nodes are tainted, and no toleration is set")


@rule(
    "HE644",
    "grace-beyond-notice",
    Severity.WARNING,
    why="GKE ends pods about 15 s after the notice, AKS the machine after about 30 s, EC2 after 2 minutes. A longer "
    "grace is a promise that the machine does not keep: whoever reckons with it writes a checkpoint that never "
    "ends.",
    fix="Set `terminationGracePeriodSeconds` to at most 15 on GKE spot, 25 on AKS, 100 on EC2.",
    at=At.WORKER_POD,
    bad="spec: {nodeSelector: {cloud.google.com/gke-spot: 'true'}, terminationGracePeriodSeconds: 60}",
    good="spec: {nodeSelector: {cloud.google.com/gke-spot: 'true'}, terminationGracePeriodSeconds: 15}",
)
def grace_beyond_notice(job: LintedJob) -> Iterator[Hit]:
    """Compares the workers' grace with what their spot machines give."""
    field = job.worker.pod.spec.get("terminationGracePeriodSeconds")
    grace = 30 if field.number is None else field.number
    notices = [_NOTICE_SECONDS[wish.key] for wish in _spot_wishes(job.worker.pod)]
    if job.elastic and notices and grace > min(notices):
        yield hit(field, f"the grace is {grace} s; the machine is gone after {min(notices)} s")
