"""Which workers may be used, in which order, and why each other one may not: values in, a value out.

A worker is offered only if it is this job's, Running, Ready, not leaving for any reason that is known, on a node that
is not being emptied, and answers on its ready port. Doubt leaves a worker out; it never leaves out all of them, because
Horovod takes an empty list for the end of the job (`reach` sees to that).

The order puts first who is most likely to live, as Horovod makes the first host rank 0, which holds the state that the
others copy: on-demand before spot, then who has been Ready longest. It is the order of the values alone; a launcher
keeps the order of the hosts it already has.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Final

from hvd_elastic.discovery.rules.views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import WorkerState

__all__ = [
    "AtRisk",
    "EligibilityRules",
    "EligibleHosts",
    "LeftOut",
    "NodeView",
    "PodView",
    "Reason",
    "WorkerView",
    "eligible_hosts",
]


class Reason(StrEnum):
    """Why a pod is not offered. The first that holds, in this order, is the one that is told."""

    NOT_OURS = "not-ours"
    """Its controller is not this MPIJob: an earlier job of the same name, or a stranger with our labels."""
    ENDED = "ended"
    """Succeeded or Failed."""
    DISRUPTED = "disrupted"
    """DisruptionTarget: preempted, evicted, tainted away. It stands there before the deletion and says more."""
    TERMINATING = "terminating"
    PENDING = "pending"
    NOT_READY = "not-ready"
    LEAVE_ASKED = "leave-asked"
    SCALED_DOWN = "scaled-down"
    """Fewer workers are wanted and this one is among those that the operator will delete."""
    NODE_DRAINING = "node-draining"
    UNUSABLE_ADDRESS = "unusable-address"
    """None yet, or IPv6: Horovod's list is `host:slots` and cannot tell the colons apart."""
    QUARANTINED = "quarantined"
    """Its address was another pod's a moment ago and the launcher has not yet seen that one go."""
    NOT_ASKED = "not-asked"
    """Ready, but it has not said a word on its ready port so far."""
    UNREACHABLE = "unreachable"
    LEAVING = "leaving"
    """Its own entry point says so: it got SIGTERM."""
    ADDRESS_TAKEN = "address-taken"
    """A younger pod has the same address: this one is a ghost of a node that restarted."""
    NODE_AT_RISK = "node-at-risk"
    """The node may go soon, and the job has enough workers without this one."""


class AtRisk(StrEnum):
    """What becomes of workers on nodes that may go soon (cordoned, rebalance recommended)."""

    KEEP = "keep"
    SPARE = "spare"
    """Left out where the others make up the min workers; kept otherwise."""
    OMIT = "omit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibilityRules:
    """What does not change while a job runs, but for its victims."""

    owner_uid: str = ""
    """The MPIJob's UID; empty asks nothing of a pod's owner (local hosts have none)."""
    slots: int = 1
    """Processes per worker."""
    min_workers: int = 1
    at_risk: AtRisk = AtRisk.SPARE
    victims: frozenset[str] = frozenset()
    """UIDs of the workers that a scale-down takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A pod that is not offered, and why."""

    pod: str
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleHosts:
    """Hosts in the order of ranks; pods left out by name; names of the offered pods whose node may go soon."""

    hosts: tuple[Host, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    at_risk: tuple[str, ...] = ()
    lines: bytes | None = field(default=None, compare=False, repr=False)
    """The hosts' lines of the snapshot, where they are kept together."""
    news: Mapping[str, Host | None] | None = field(default=None, compare=False, repr=False)
    """By UID, all pods that stand otherwise than when the launcher was last told, as they stand now: the host, or None
    where it is not offered. None for the whole: not known, any pod may."""

    def is_short(self, rules: EligibilityRules) -> bool:
        """Whether the offered slots are fewer than the min workers need: all hosts have the same number."""
        return len(self.hosts) < rules.min_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod with nothing against it, seen for itself."""

    key: tuple[bool, float, float, str, str]
    """Sorts by likelihood to live: on-demand, oldest Ready, oldest; then name and UID, so that it is one order."""
    host: Host
    created: float
    uid: str
    risk: str


Against = tuple[Reason, str]
"""A reason and its detail."""

ENDED: Final = frozenset({"Succeeded", "Failed"})
UNASKED: Final = WorkerView()
"""Stands in for every worker where nobody asks: generation 0."""


def eligible_hosts(
    pods: Iterable[PodView],
    rules: EligibilityRules,
    *,
    nodes: Mapping[str, NodeView] | None = None,
    workers: Mapping[str, WorkerView] | None = None,
    quarantine: Container[str] = frozenset(),
) -> EligibleHosts:
    """Decide over all pods of a job.

    `nodes` by name, where they may be read. `workers` by pod UID, as they answered on the ready port; None where nobody
    asks, and then every worker counts as answering, with generation 0. `quarantine` holds pod UIDs that must wait.
    """
    known = nodes or {}
    return assemble(
        (
            judge(pod, rules, known.get(pod.node), UNASKED if workers is None else workers.get(pod.uid), quarantine)
            for pod in pods
        ),
        rules,
    )


def judge(
    pod: PodView,
    rules: EligibilityRules,
    node: NodeView | None,
    worker: WorkerView | None,
    quarantine: Container[str] = frozenset(),
) -> Candidate | LeftOut:
    """One pod for itself."""
    against = (
        _against_pod(pod, rules) or _against_node(node) or _against_address(pod, quarantine) or _against_worker(worker)
    )
    if against:
        return LeftOut(pod=pod.name, reason=against[0], detail=against[1])
    assert worker is not None
    return Candidate(
        key=(node is not None and node.spot, pod.ready_since, pod.created, pod.name, pod.uid),
        host=Host(address=pod.ip, slots=rules.slots, alias=f"{pod.uid}-{worker.generation}", pod=pod.name),
        created=pod.created,
        uid=pod.uid,
        risk=node.at_risk if node else "",
    )


def assemble(verdicts: Iterable[Candidate | LeftOut], rules: EligibilityRules) -> EligibleHosts:
    """Bring single verdicts together: one pod an address, enough workers before risky ones go, the order."""
    left_out: list[LeftOut] = []
    candidates: list[Candidate] = []
    for verdict in verdicts:
        if isinstance(verdict, LeftOut):
            left_out.append(verdict)
        else:
            candidates.append(verdict)
    candidates.sort(key=_key)
    offered = _without_risk(_one_an_address(candidates, left_out), rules, left_out)
    left_out.sort(key=order_of_left_out)
    return EligibleHosts(
        hosts=tuple([candidate.host for candidate in offered]),
        left_out=tuple(left_out),
        at_risk=tuple([candidate.host.pod for candidate in offered if candidate.risk]),
    )


_key = attrgetter("key")
order_of_left_out = attrgetter("pod", "reason", "detail")


def _one_an_address(candidates: list[Candidate], left_out: list[LeftOut]) -> list[Candidate]:
    if len({candidate.host.address for candidate in candidates}) == len(candidates):
        return candidates
    holders = {
        candidate.host.address: candidate
        for candidate in sorted(candidates, key=lambda candidate: (candidate.created, candidate.uid))
    }
    ghosts = [candidate for candidate in candidates if holders[candidate.host.address] is not candidate]
    left_out += [
        LeftOut(
            pod=ghost.host.pod,
            reason=Reason.ADDRESS_TAKEN,
            detail=f"{ghost.host.address} is now that of {holders[ghost.host.address].host.pod}",
        )
        for ghost in ghosts
    ]
    return [candidate for candidate in candidates if holders[candidate.host.address] is candidate]


def _without_risk(candidates: list[Candidate], rules: EligibilityRules, left_out: list[LeftOut]) -> list[Candidate]:
    safe = [candidate for candidate in candidates if not candidate.risk]
    enough = rules.at_risk is AtRisk.OMIT or (rules.at_risk is AtRisk.SPARE and len(safe) >= rules.min_workers)
    if len(safe) == len(candidates) or not enough:
        return candidates
    left_out += [
        LeftOut(pod=candidate.host.pod, reason=Reason.NODE_AT_RISK, detail=candidate.risk)
        for candidate in candidates
        if candidate.risk
    ]
    return safe


def _against_pod(pod: PodView, rules: EligibilityRules) -> Against | None:  # noqa: PLR0911 - a table, row by row
    if rules.owner_uid and pod.owner_uid != rules.owner_uid:
        return Reason.NOT_OURS, pod.owner_uid
    if pod.phase in ENDED:
        return Reason.ENDED, pod.reason or pod.phase
    if pod.disruption:
        return Reason.DISRUPTED, pod.disruption
    if pod.deleting_at is not None:
        return Reason.TERMINATING, ""
    if pod.phase != "Running":
        return Reason.PENDING, pod.reason or pod.phase
    if not pod.ready:
        return Reason.NOT_READY, ""
    if pod.leave:
        return Reason.LEAVE_ASKED, ""
    if pod.uid in rules.victims:
        return Reason.SCALED_DOWN, ""
    return None


def _against_node(node: NodeView | None) -> Against | None:
    return (Reason.NODE_DRAINING, node.draining) if node and node.draining else None


def _against_address(pod: PodView, quarantine: Container[str]) -> Against | None:
    if not pod.ip or ":" in pod.ip:
        return Reason.UNUSABLE_ADDRESS, pod.ip or "none yet"
    return (Reason.QUARANTINED, pod.ip) if pod.uid in quarantine else None


def _against_worker(worker: WorkerView | None) -> Against | None:
    if worker is None:
        return Reason.NOT_ASKED, ""
    if worker.lost:
        return Reason.UNREACHABLE, ""
    return (Reason.LEAVING, "") if worker.state is WorkerState.LEAVING else None
