"""All that is known of a job, and the answer that follows from it.

The answer is that of `eligible_hosts` over the same values. What is kept beside them is each pod's own verdict, so that
one event costs one verdict and not a thousand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hvd_elastic.discovery.kube.watch import Changed, Gone, Listed, Message
from hvd_elastic.discovery.rules.eligibility import EligibilityRules, EligibleHosts, LeftOut, judge
from hvd_elastic.discovery.rules.ranking import Ranking
from hvd_elastic.discovery.rules.views import NodeView, PodView, WorkerView


class Inventory:
    """Pods, nodes and answers of workers, by the messages that bring them. Not for several threads."""

    def __init__(self, rules: EligibilityRules, workers: Mapping[str, WorkerView] | None = None) -> None:
        self.pods: dict[str, PodView] = {}
        """By UID."""
        self.nodes: dict[str, NodeView] = {}
        self.nodes_known = False
        self.workers: dict[str, WorkerView] = dict(workers or {})
        self.addresses: dict[str, str] = {}
        """Whom to ask: UID to address of every pod of this job that may answer."""
        self.moves = 0
        """Grows with each change of `addresses`."""
        self._rules = rules
        self._ranking = Ranking()
        self._ending: set[str] = set()
        """UIDs, kept by event: of a thousand pods few are ending, and they are looked for each second."""

    @property
    def rules(self) -> EligibilityRules:
        """What it judges by."""
        return self._rules

    def take_owner(self, uid: str) -> bool:
        """The MPIJob's UID is known; whether anything changed."""
        return self._take_rules(replace(self._rules, owner_uid=uid))

    def take_victims(self, victims: frozenset[str]) -> bool:
        """Leave these out for a scale-down; whether anything changed."""
        return self._take_rules(replace(self._rules, victims=victims))

    def take_pods(self, message: Message[PodView]) -> bool:
        """Take what the watch of the pods says; whether anything changed."""
        match message:
            case Listed(objects=pods):
                now = {pod.uid: pod for pod in pods}
                changed = now != self.pods
                self.pods = now
                self._ending = {uid for uid, pod in now.items() if pod.is_ending}
                self._ranking.clear()
                self.addresses.clear()
                self.moves += 1
                self.workers = {uid: worker for uid, worker in self.workers.items() if uid in now}
                self._judge(now)
                return changed
            case Changed(object=pod):
                if self.pods.get(pod.uid) == pod:
                    return False
                self.pods[pod.uid] = pod
                (self._ending.add if pod.is_ending else self._ending.discard)(pod.uid)
                return self._judge((pod.uid,))
            case Gone(object=pod):
                self._ending.discard(pod.uid)
                self._ranking.drop(pod.uid)
                self.moves += self.addresses.pop(pod.uid, None) is not None
                self.workers.pop(pod.uid, None)
                return self.pods.pop(pod.uid, None) is not None
            case _:
                return False

    def take_nodes(self, message: Message[NodeView]) -> bool:
        """Take what the watch of the nodes says; whether anything changed."""
        match message:
            case Listed(objects=nodes):
                self.nodes = {node.name: node for node in nodes}
                self.nodes_known = True
                return self._judge(self.pods)
            case Changed(object=node) if self.nodes.get(node.name) != node:
                self.nodes[node.name] = node
            case Gone(object=node):
                self.nodes.pop(node.name, None)
            case _:
                return False
        return self._judge([uid for uid, pod in self.pods.items() if pod.node == node.name])

    def take_workers(self, views: Mapping[str, WorkerView]) -> bool:
        """Take what workers answered; whether anything changed."""
        known = {uid: view for uid, view in views.items() if uid in self.pods}
        self.workers.update(known)
        return self._judge(known)

    def answer(self, quarantine: frozenset[str] = frozenset()) -> EligibleHosts:
        """Decide. `quarantine`: UIDs whose addresses change hands."""
        waiting = {
            uid: judge(self.pods[uid], self._rules, self._node(uid), self.workers.get(uid), quarantine)
            for uid in quarantine
        }
        return self._ranking.answer(self._rules, waiting)

    def told(self) -> None:
        """The launcher knows the last answer: `Answer.news` tells only what changes from now on."""
        self._ranking.told()

    def why_not(self, uid: str) -> str:
        """Why a pod is left out, in words."""
        verdict = self._ranking.verdict(uid)
        if isinstance(verdict, LeftOut):
            return f"{verdict.reason}: {verdict.detail}".removesuffix(": ")
        return "deleted" if verdict is None else "started anew"

    def own_pods(self) -> tuple[PodView, ...]:
        """The pods that the MPIJob owns."""
        return tuple(pod for pod in self.pods.values() if self._is_ours(pod))

    def ending_pods(self) -> tuple[PodView, ...]:
        """The pods that have failed or are being deleted."""
        return tuple(self.pods[uid] for uid in self._ending)

    def _take_rules(self, rules: EligibilityRules) -> bool:
        changed = rules != self._rules
        self._rules = rules
        return changed and self._judge(self.pods)

    def _locate(self, pod: PodView) -> None:
        address = pod.ip if pod.phase == "Running" and ":" not in pod.ip and self._is_ours(pod) else ""
        if address != self.addresses.get(pod.uid, ""):
            self.moves += 1
            self.addresses[pod.uid] = address
            if not address:
                del self.addresses[pod.uid]

    def _is_ours(self, pod: PodView) -> bool:
        return pod.owner_uid == self._rules.owner_uid

    def _node(self, uid: str) -> NodeView | None:
        return self.nodes.get(self.pods[uid].node)

    def _judge(self, uids: Iterable[str]) -> bool:
        changed = False
        for uid in uids:
            self._locate(self.pods[uid])
            verdict = judge(self.pods[uid], self._rules, self._node(uid), self.workers.get(uid))
            changed |= self._ranking.put(uid, verdict)
        return changed
