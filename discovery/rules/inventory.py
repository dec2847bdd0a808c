"""All that is known of a job: its pods, their nodes and the workers' answers, kept up to date by messages.

Each pod's own verdict is kept beside them in an `EligibilityIndex`, so one event costs one verdict and not a thousand.
"""

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import replace

from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed, Message
from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.rules.eligibility import EligibilityIndex, EligibleHosts
from hvd_elastic.discovery.rules.node_signals import DELETED
from hvd_elastic.discovery.rules.pod_verdict import SOON, EligibilityRules, LeftOut, Reason, judge
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import WorkerState


class Inventory:
    """Pods, nodes and workers' answers. Not thread-safe. Each `update_*` returns whether anything changed."""

    def __init__(self, rules: EligibilityRules, workers: Mapping[str, WorkerView] | None = None) -> None:
        self.pods: dict[str, PodView] = {}
        """By UID."""
        self.nodes: dict[str, NodeView] = {}
        """By name."""
        self.nodes_known = False
        """Whether the nodes were listed: they may be forbidden."""
        self._deleted_nodes: dict[str, NodeView] = {}
        """By name, those that pods are bound to. Their pods stay Ready until the pods' garbage collector comes."""
        self.workers: dict[str, WorkerView] = dict(workers or {})
        """By pod UID."""
        self.addresses: dict[str, str] = {}
        """UID to address of every pod of this job that may answer."""
        self.address_changes = 0
        """Grows with each change of `addresses`."""
        self.expected: dict[str, str] = {}
        """UID to address of every pod that is offered, or may be in a moment."""
        self.expected_changes = 0
        """Grows with each change of `expected`."""
        self._rules = rules
        self.index = EligibilityIndex()
        self._quarantine: frozenset[str] = frozenset()
        self._blocking: set[str] = set()
        """UIDs, kept per event: few of a thousand pods may block others, and the reaper asks for them each second."""

    @property
    def rules(self) -> EligibilityRules:
        return self._rules

    def update_owner(self, uid: str) -> bool:
        return self._update_rules(replace(self._rules, owner_uid=uid))

    def update_victims(self, victims: frozenset[str]) -> bool:
        """Leave out these UIDs, and no others, for a scale-down."""
        return self._update_rules(replace(self._rules, victims=victims))

    def withdraw(self, uids: frozenset[str]) -> bool:
        """Leave out these UIDs, and no others, for a moment."""
        return self._update_rules(replace(self._rules, withdrawn=uids))

    def withdrawn(self) -> frozenset[str]:
        """UIDs of the workers against which nothing speaks but that they are withdrawn for a moment."""
        return frozenset(uid for uid in self._rules.withdrawn & self.pods.keys() if self._is_withdrawn(uid))

    def end_with_launcher(self) -> bool:
        """Offer no worker any more: the launcher's pod ends."""
        return self._update_rules(replace(self._rules, launcher_ending=True))

    def update_pods(self, message: Message[PodView]) -> bool:
        match message:
            case Listed(objects=pods):
                return self._replace_pods({pod.uid: pod for pod in pods})
            case Changed(object=pod):
                if self.pods.get(pod.uid) == pod:
                    return False
                self.pods[pod.uid] = pod
                (self._blocking.add if pod.may_block else self._blocking.discard)(pod.uid)
                return self._judge((pod.uid,))
            case Deleted(object=pod):
                self._blocking.discard(pod.uid)
                self.index.remove(pod.uid)
                self.address_changes += self.addresses.pop(pod.uid, None) is not None
                self.expected_changes += self.expected.pop(pod.uid, None) is not None
                self.workers.pop(pod.uid, None)
                return self.pods.pop(pod.uid, None) is not None
            case _:
                return False

    def update_nodes(self, message: Message[NodeView]) -> bool:
        match message:
            case Listed(objects=nodes):
                gone = self.nodes.keys() - {node.name for node in nodes}
                self.nodes = {node.name: node for node in nodes}
                self.nodes_known = True
                self._forget_nodes(gone)
                return self._judge(self.pods)
            case Changed(object=node) if self.nodes.get(node.name) != node:
                self.nodes[node.name] = node
            case Deleted(object=node):
                self.nodes.pop(node.name, None)
                self._forget_nodes({node.name})
            case _:
                return False
        return self._judge([uid for uid, pod in self.pods.items() if pod.node == node.name])

    def update_workers(self, views: Mapping[str, WorkerView]) -> bool:
        """Apply workers' answers; those of unknown pods are ignored."""
        known = {uid: view for uid, view in views.items() if uid in self.pods}
        self.workers.update(known)
        return self._judge(known)

    def eligible_hosts(
        self, quarantine: frozenset[str] = frozenset(), offered: Set[str] = frozenset()
    ) -> EligibleHosts:
        """What the function of this name decides over the same values."""
        affected, self._quarantine = self._quarantine ^ quarantine, quarantine
        self._judge(affected & self.pods.keys())
        return self.index.eligible_hosts(self._rules, offered)

    def why_left_out(self, host: Host) -> str:
        """Why a host is no longer offered, in words."""
        verdict = self.index.verdict(host.uid)
        if isinstance(verdict, LeftOut):
            return f"{verdict.reason}: {verdict.detail}".removesuffix(": ")
        if verdict is None:
            return "deleted"
        if verdict.risk:
            return f"{Reason.NODE_AT_RISK}: {verdict.risk}"
        return Reason.SURPLUS if verdict.host == host else "started anew"

    def own_pods(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods.values() if self._is_own(pod))

    def is_training(self, silent: Container[str] = ()) -> bool:
        """Whether any of the job's own workers has training processes. `silent`: UIDs of those that miss their probes.

        A worker that leaves answers for as long as it has some: they may still store the last checkpoint.
        """
        return any(
            worker.state is not WorkerState.WAITING and uid not in silent and self._is_own(self.pods[uid])
            for uid, worker in self.workers.items()
            if uid in self.pods
        )

    def blocking_pods(self) -> tuple[PodView, ...]:
        """The pods that may stand in the way of their successors."""
        return tuple(self.pods[uid] for uid in self._blocking)

    def _replace_pods(self, pods: dict[str, PodView]) -> bool:
        changed = pods != self.pods
        self.pods = pods
        self._blocking = {uid for uid, pod in pods.items() if pod.may_block}
        self.index = EligibilityIndex()
        self.addresses.clear()
        self.expected.clear()
        self.address_changes += 1
        self.expected_changes += 1
        self.workers = {uid: worker for uid, worker in self.workers.items() if uid in pods}
        self._judge(pods)
        return changed

    def _forget_nodes(self, names: Iterable[str]) -> None:
        """Keep in mind which nodes were deleted under the pods: what was said of them would be forgotten with them."""
        bound = {pod.node for pod in self.pods.values()}
        known = [name for name in (*self._deleted_nodes, *names) if name in bound and name not in self.nodes]
        self._deleted_nodes = {name: NodeView(name=name, ready=False, draining=DELETED) for name in known}

    def _update_rules(self, rules: EligibilityRules) -> bool:
        changed = rules != self._rules
        self._rules = rules
        return changed and self._judge(self.pods)

    def _judge(self, uids: Iterable[str]) -> bool:
        changed = False
        for uid in uids:
            pod = self.pods[uid]
            self._update_address(pod)
            node = self.nodes.get(pod.node) or self._deleted_nodes.get(pod.node)
            verdict = judge(pod, self._rules, node, self.workers.get(uid), self._quarantine)
            changed |= self.index.put(uid, verdict)
            is_expected = not isinstance(verdict, LeftOut) or verdict.reason in SOON
            address = self.addresses.get(uid, "") if is_expected else ""
            self.expected_changes += _set_address(self.expected, uid, address)
        return changed

    def _update_address(self, pod: PodView) -> None:
        address = pod.ip if pod.phase == "Running" and self._is_own(pod) else ""
        self.address_changes += _set_address(self.addresses, pod.uid, address)

    def _is_withdrawn(self, uid: str) -> bool:
        verdict = self.index.verdict(uid)
        return isinstance(verdict, LeftOut) and verdict.reason is Reason.OFFERED_ANEW

    def _is_own(self, pod: PodView) -> bool:
        return pod.owner_uid == self._rules.owner_uid


def _set_address(addresses: dict[str, str], uid: str, address: str) -> bool:
    """Set a pod's address, or remove it if it is empty; return whether that changed anything."""
    if address == addresses.get(uid, ""):
        return False
    if address:
        addresses[uid] = address
    else:
        del addresses[uid]
    return True
