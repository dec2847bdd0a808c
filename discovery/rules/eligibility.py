"""Which workers may be used, in which order, and why each other one may not.

`pod_verdict.judge` decides about one pod alone. The index here brings the verdicts together: one pod per address,
enough workers before those on risky nodes are left out, an allowed number of them, and the order. Doubt leaves one
worker out but never all of them, because Horovod takes an empty list for the end of the job (the prober sees to that).

The hosts most likely to survive come first, because Horovod makes the first host rank 0, which holds the state that the
others copy: on-demand before spot, then the longest Ready. The order depends on these values alone; a launcher keeps
the order of the hosts it already has.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.rules.pod_verdict import AtRisk, Candidate, EligibilityRules, LeftOut, Reason, Verdict, judge
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.policy.allowed_sizes import largest_size

ASSUMED_ANSWER: Final = WorkerView(silent=True)
"""Stands for every worker where no worker is asked: generation 0, and no word against the node controller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleHosts:
    """Hosts in the order of ranks; pods left out, by name; names of the offered pods whose node may go soon."""

    hosts: tuple[Host, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    at_risk: tuple[str, ...] = ()

    def is_short(self, rules: EligibilityRules) -> bool:
        """Whether the offered slots are fewer than the min workers need: all hosts have the same number."""
        return len(self.hosts) < rules.min_workers


def eligible_hosts(
    pods: Iterable[PodView],
    rules: EligibilityRules,
    *,
    nodes: Mapping[str, NodeView] | None = None,
    workers: Mapping[str, WorkerView] | None = None,
    quarantine: Container[str] = frozenset(),
    offered: Set[str] = frozenset(),
) -> EligibleHosts:
    """Decide over all pods of a job, by a fresh index.

    Args:
        pods: all of them, each UID once.
        rules: what the decision depends on besides the pods.
        nodes: by name; None where nodes may not be read.
        workers: by pod UID, as they answered on the ready port. None where no worker is asked; then every worker counts
            as answering, with generation 0.
        quarantine: UIDs of pods that must wait, because the launcher still takes their address for another pod's.
        offered: UIDs of the pods on the launcher's present list. Where some are surplus, these stay.
    """
    index = EligibilityIndex()
    for pod in pods:
        worker = ASSUMED_ANSWER if workers is None else workers.get(pod.uid)
        index.put(pod.uid, judge(pod, rules, (nodes or {}).get(pod.node), worker, quarantine))
    return index.eligible_hosts(rules, offered)


class EligibilityIndex:
    """The verdicts on all pods of a job, by UID and in order, so that a change costs one place and not a sort of all.

    At 1,000 pods and 50 changes a second, a list takes 0.6 ms of CPU per change in all. Without the kept lines and the
    tracked changes it takes 0.8 ms, with a new sort 1.5 ms, and with a new judgement of all pods 2.7 ms; the aim is 0.6
    ms (3% of a core, `benchmarks/discovery.py`).
    """

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._candidates: list[Candidate] = []
        self._hosts: list[Host] = []
        """The candidates' hosts."""
        self._lines: list[bytes] = []
        """The hosts' lines in the snapshot."""
        self._left_out: list[LeftOut] = []
        self._per_address: Counter[str] = Counter()
        """How many candidates have each address."""
        self._risky = 0
        """How many candidates are on a node that may go soon."""
        self._changed: set[str] | None = None
        """UIDs whose verdict has changed since `mark`; None if any may have."""
        self._all_offered = False
        """Whether the last decision offered every candidate."""

    def put(self, uid: str, verdict: Verdict) -> bool:
        """Set a pod's verdict; return whether it differs from the one before. Raises InvalidHostError."""
        if self._verdicts.get(uid) == verdict:
            return False
        self.remove(uid)
        if isinstance(verdict, LeftOut):
            insort(self._left_out, verdict, key=_left_out_key)
        else:
            place = bisect_left(self._candidates, verdict.rank_key, key=_rank_key)
            self._lines.insert(place, verdict.host.line)
            self._hosts.insert(place, verdict.host)
            self._candidates.insert(place, verdict)
            self._per_address[verdict.host.address] += 1
            self._risky += bool(verdict.risk)
        self._verdicts[uid] = verdict
        return True

    def remove(self, uid: str) -> None:
        if self._changed is not None:
            self._changed.add(uid)
        verdict = self._verdicts.pop(uid, None)
        if isinstance(verdict, LeftOut):
            # Equal ones may be in the list; they are alike, so any will do.
            del self._left_out[bisect_left(self._left_out, _left_out_key(verdict), key=_left_out_key)]
        elif verdict is not None:
            # No other candidate has this key: the UID is in it.
            place = bisect_left(self._candidates, verdict.rank_key, key=_rank_key)
            del self._candidates[place], self._hosts[place], self._lines[place]
            self._forget_candidate(verdict)

    def verdict(self, uid: str) -> Verdict | None:
        """The verdict on one pod alone; None for an unknown pod."""
        return self._verdicts.get(uid)

    def eligible_hosts(self, rules: EligibilityRules, offered_before: Set[str] = frozenset()) -> EligibleHosts:
        """Decide over all verdicts. `rules`: those by which the pods were judged. `offered_before`: UIDs of the pods
        on the launcher's present list.
        """
        offered, rejected = self._candidates, list[LeftOut]()
        if len(self._per_address) < len(offered):
            offered, ghosts = _one_per_address(offered)
            rejected += ghosts
        if self._risky:
            offered, risky = _without_risk(offered, rules)
            rejected += risky
        if rules.sizes and len(offered) not in rules.sizes:
            offered, surplus = _of_allowed_size(offered, rules.sizes, offered_before)
            rejected += surplus
        self._all_offered = not rejected
        return EligibleHosts(
            hosts=tuple([candidate.host for candidate in offered] if rejected else self._hosts),
            left_out=tuple(sorted(self._left_out + rejected, key=_left_out_key) if rejected else self._left_out),
            at_risk=tuple([candidate.host.pod for candidate in offered if candidate.risk]) if self._risky else (),
        )

    def mark(self) -> None:
        """Take the last decision as published: `changed_hosts` compares with it from now on."""
        self._changed = set() if self._all_offered else None

    def changed_hosts(self) -> Mapping[str, Host | None] | None:
        """By UID, the pods that the last decision may treat differently from the marked one, None for those left out.

        None if any pod may be affected: address and risk decide about several pods together.
        """
        if self._changed is None or not self._all_offered:
            return None
        verdicts = {uid: self._verdicts.get(uid) for uid in self._changed}
        return {uid: verdict.host if isinstance(verdict, Candidate) else None for uid, verdict in verdicts.items()}

    def lines(self) -> bytes | None:
        """The snapshot's lines for the hosts of the last decision; None if they are not at hand."""
        return b"".join(self._lines) if self._all_offered else None

    def _forget_candidate(self, candidate: Candidate) -> None:
        address = candidate.host.address
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
        self._risky -= bool(candidate.risk)


_rank_key = attrgetter("rank_key")
_left_out_key = attrgetter("pod", "reason", "detail")


def _one_per_address(candidates: list[Candidate]) -> tuple[list[Candidate], list[LeftOut]]:
    by_age = sorted(candidates, key=lambda candidate: (candidate.created, candidate.uid))
    youngest = {candidate.host.address: candidate for candidate in by_age}
    ghosts = [
        LeftOut(
            pod=candidate.host.pod,
            reason=Reason.ADDRESS_TAKEN,
            detail=f"{candidate.host.address} is now that of {youngest[candidate.host.address].host.pod}",
        )
        for candidate in candidates
        if youngest[candidate.host.address] is not candidate
    ]
    return [candidate for candidate in candidates if youngest[candidate.host.address] is candidate], ghosts


def _without_risk(candidates: list[Candidate], rules: EligibilityRules) -> tuple[list[Candidate], list[LeftOut]]:
    safe = [candidate for candidate in candidates if not candidate.risk]
    if not (rules.at_risk is AtRisk.OMIT or (rules.at_risk is AtRisk.SPARE and len(safe) >= rules.min_workers)):
        return candidates, []
    risky = [
        LeftOut(pod=candidate.host.pod, reason=Reason.NODE_AT_RISK, detail=candidate.risk)
        for candidate in candidates
        if candidate.risk
    ]
    return safe, risky


def _of_allowed_size(
    candidates: list[Candidate], sizes: tuple[int, ...], offered_before: Set[str]
) -> tuple[list[Candidate], list[LeftOut]]:
    """Those that train stay, whoever is more likely to survive: a change of members costs a resize."""
    size = largest_size(sizes, len(candidates))
    by_worth = sorted(candidates, key=lambda candidate: candidate.uid not in offered_before)
    kept = {candidate.uid for candidate in by_worth[:size]}
    surplus = [
        LeftOut(pod=candidate.host.pod, reason=Reason.SURPLUS) for candidate in candidates if candidate.uid not in kept
    ]
    return [candidate for candidate in candidates if candidate.uid in kept], surplus
