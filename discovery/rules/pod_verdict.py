"""Whether one pod may be used, and if not, why: values in, a value out.

A worker is offered only if it is this job's, Running, Ready, not leaving for any known reason, on a node that is not
being emptied, and answering on its ready port.

Ready is the kubelet's word. After an outage of the API server the node controller may take it from the pods of any
node: it asks for the kubelets' leases again only after 30 to 60 s (client-go 0.34, `tools/cache/reflector.go`), and
gives up a node that it has not heard of for 50 s. A kubelet that starts anew takes it from all its pods for a second or
two. A worker that answers on its ready port meanwhile goes on. And at a start the worker answers first: the kubelet
calls it Ready some tenths of a second later.
"""

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import WorkerState


class Reason(StrEnum):
    """Why a pod is not offered. Where several hold, the first in this order is given."""

    NOT_OURS = "not-ours"
    """Its controller is not this MPIJob: an earlier job of the same name, or a stranger with our labels."""
    ENDED = "ended"
    """Succeeded or Failed."""
    DISRUPTED = "disrupted"
    """Preempted, evicted, tainted away. Kubernetes and Kueue say so before the deletion, and it says more."""
    TERMINATING = "terminating"
    PENDING = "pending"
    NOT_READY = "not-ready"
    LEAVE_ASKED = "leave-asked"
    SCALED_DOWN = "scaled-down"
    """Fewer workers are wanted, and the operator will delete this one."""
    OFFERED_ANEW = "offered-anew"
    """Withdrawn for a moment, because the launcher has not used it."""
    LAUNCHER_ENDING = "launcher-ending"
    """The launcher's pod is told to end, and takes no worker along."""
    NODE_DRAINING = "node-draining"
    NO_ADDRESS = "no-address"
    """It runs, and its kubelet has not yet said where."""
    QUARANTINED = "quarantined"
    """Another pod had its address a moment ago, and the launcher has not yet seen that pod leave."""
    NOT_ASKED = "not-asked"
    """Ready, but it has not yet answered on its ready port."""
    UNREACHABLE = "unreachable"
    LEAVING = "leaving"
    """Its own entry point says so: it got SIGTERM."""
    ADDRESS_TAKEN = "address-taken"
    """A younger pod has the same address: this one is left over from before its node restarted."""
    NODE_AT_RISK = "node-at-risk"
    """The node may go soon, and the job has enough workers without this one."""
    SURPLUS = "surplus"
    """The others are as many as the largest allowed size that can be reached."""


SOON: Final = frozenset({Reason.NOT_READY, Reason.OFFERED_ANEW, Reason.NOT_ASKED})
"""Reasons of a pod that runs, and may be offered in a moment."""


class AtRisk(StrEnum):
    """What becomes of workers on nodes that may go soon (cordoned, rebalance recommended)."""

    KEEP = "keep"
    SPARE = "spare"
    """Left out if the other workers reach the minimum; kept otherwise."""
    OMIT = "omit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibilityRules:
    """What the decision depends on besides the pods. Of it, `victims` and what follows change while a job runs."""

    owner_uid: str = ""
    """The MPIJob's UID. Empty accepts any owner (local hosts have none)."""
    slots: int = 1
    """Processes per worker."""
    min_workers: int = 1
    sizes: tuple[int, ...] = ()
    """The only numbers of workers to offer; empty: any, as for a launcher that knows the sizes itself."""
    at_risk: AtRisk = AtRisk.SPARE
    victims: frozenset[str] = frozenset()
    """UIDs of the workers that a scale-down removes."""
    withdrawn: frozenset[str] = frozenset()
    """UIDs of the workers that are to be offered anew."""
    launcher_ending: bool = False
    """Whether the launcher's pod is told to end: no worker is offered any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A pod that is not offered, and why."""

    pod: str
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod with nothing against it when it is judged alone."""

    rank_key: tuple[bool, float, float, str, str]
    """Sorts the workers most likely to survive first: on-demand, longest Ready, oldest. Name and UID break ties."""
    host: Host
    created: float
    """Unix seconds."""
    uid: str
    risk: str
    """Why the pod's node may go soon; empty if nothing says so."""


Verdict = Candidate | LeftOut

Objection = tuple[Reason, str]
"""A reason and its detail."""


def judge(
    pod: PodView,
    rules: EligibilityRules,
    node: NodeView | None,
    worker: WorkerView | None,
    quarantine: Container[str] = frozenset(),
) -> Verdict:
    """Judge one pod alone. `worker` is None if it has not answered yet; `quarantine` holds UIDs of pods that wait."""
    objection = (
        _objection_to_pod(pod, rules)
        or _objection_to_node(node)
        or _objection_to_address(pod, quarantine)
        or _objection_to_worker(pod, worker)
    )
    if objection:
        return LeftOut(pod=pod.name, reason=objection[0], detail=objection[1])
    assert worker is not None
    return Candidate(
        rank_key=(node is not None and node.spot, pod.ready_since, pod.created, pod.name, pod.uid),
        host=Host(address=pod.ip, slots=rules.slots, alias=f"{pod.uid}-{worker.generation}", pod=pod.name),
        created=pod.created,
        uid=pod.uid,
        risk=node.at_risk if node else "",
    )


def _objection_to_pod(pod: PodView, rules: EligibilityRules) -> Objection | None:  # noqa: PLR0911 - a table, row by row
    if rules.owner_uid and pod.owner_uid != rules.owner_uid:
        return Reason.NOT_OURS, pod.owner_uid
    if pod.has_ended:
        return Reason.ENDED, pod.reason or pod.phase
    if pod.disruption:
        return Reason.DISRUPTED, pod.disruption
    if pod.deleting_at is not None:
        return Reason.TERMINATING, ""
    if pod.phase != "Running":
        return Reason.PENDING, pod.reason or pod.phase
    if not pod.may_answer:
        return Reason.NOT_READY, ""
    if pod.leave:
        return Reason.LEAVE_ASKED, ""
    if pod.uid in rules.victims:
        return Reason.SCALED_DOWN, ""
    if pod.uid in rules.withdrawn:
        return Reason.OFFERED_ANEW, ""
    return (Reason.LAUNCHER_ENDING, "") if rules.launcher_ending else None


def _objection_to_node(node: NodeView | None) -> Objection | None:
    return (Reason.NODE_DRAINING, node.draining) if node and node.draining else None


def _objection_to_address(pod: PodView, quarantine: Container[str]) -> Objection | None:
    if not pod.ip:
        return Reason.NO_ADDRESS, ""
    return (Reason.QUARANTINED, pod.ip) if pod.uid in quarantine else None


def _objection_to_worker(pod: PodView, worker: WorkerView | None) -> Objection | None:
    if worker is None:
        return (Reason.NOT_READY if pod.starting else Reason.NOT_ASKED), ""
    if worker.lost:
        return Reason.UNREACHABLE, ""
    if not pod.ready and worker.silent:
        return Reason.NOT_READY, f"{'its node is not Ready, and ' if pod.ready_withdrawn else ''}it does not answer"
    return (Reason.LEAVING, "") if worker.state is WorkerState.LEAVING else None
