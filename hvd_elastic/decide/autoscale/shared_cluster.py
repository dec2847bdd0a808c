"""Nodes and pods as far as GPUs are concerned, from what the API server writes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hvd_elastic.client.label_selector import selects
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.discovery.kube.node_taints import Taint, taints_of, tolerates
from hvd_elastic.discovery.rules.cluster_views import unix_seconds
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_REPLICA_INDEX, Role
from hvd_elastic.system import quantity
from hvd_elastic.system.untrusted_values import decimal_count, text

WHOLE_NODE: Final = 1_000_000
"""GPUs of a pod that cannot be read: as many as its node has (`counted`)."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """A node that pods may be bound to, with its GPUs of one resource."""

    name: str
    resource: str
    gpus: int
    """Allocatable."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]

    @classmethod
    def from_json(cls, node: Json, resource: str) -> "GpuNode | None":
        """None: it has none of the resource, is cordoned, or is not Ready."""
        spec, status = node.get("spec") or {}, node.get("status") or {}
        gpus = quantity.count((status.get("allocatable") or {}).get(resource, 0))
        if not true_condition(node, "Ready") or not gpus or spec.get("unschedulable"):
            return None
        return cls(
            name=text(node["metadata"]["name"]),
            resource=resource,
            gpus=gpus,
            labels=node["metadata"].get("labels") or {},
            taints=taints_of(node),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """A pod that has GPUs of one resource or asks for some."""

    uid: str
    job: str
    """`NAMESPACE/NAME` of the MPIJob of which it is a worker; empty: of none."""
    workload: str
    """`NAMESPACE/KIND/NAME` of what an HPA would scale: of the Deployment, not of its ReplicaSet; empty: nothing."""
    index: int
    """Of the worker; -1: it is none."""
    node: str
    """Empty: it waits."""
    resource: str
    """Empty: every one that its node has."""
    gpus: int
    priority: int
    asked: float
    """Unix seconds at which it was created."""
    nominated: bool
    """Whether the scheduler has made room for it."""
    placement: "Placement"
    leaving: bool = False
    """Whether it is being deleted, and will give its GPUs back."""

    @classmethod
    def each_from_json(cls, pod: Json) -> "tuple[GpuPod, ...]":
        """The pod once for each extended resource that it asks for; of one that has ended none."""
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if status.get("phase") in _ENDED or not (asked := _asked(spec)):
            return ()
        labels = meta.get("labels") or {}
        is_worker = labels.get(LABEL_JOB_ROLE) == Role.WORKER and LABEL_JOB_NAME in labels
        first = cls(
            uid=text(meta.get("uid", "")),
            job=f"{meta.get('namespace', '')}/{labels[LABEL_JOB_NAME]}" if is_worker else "",
            workload=_workload(meta, labels),
            index=_index(labels, meta["name"]) if is_worker else -1,
            node=text(spec.get("nodeName") or ""),
            resource="",
            gpus=0,
            priority=int(spec.get("priority") or 0),
            asked=unix_seconds(meta.get("creationTimestamp")),
            nominated=bool(status.get("nominatedNodeName")),
            placement=Placement.from_json(spec),
            leaving="deletionTimestamp" in meta,
        )
        return tuple(replace(first, resource=resource, gpus=amount) for resource, amount in asked.items())

    @classmethod
    def each_of_template(cls, template: Json, *, workload: str = "") -> "tuple[GpuPod, ...]":
        """A pod of a template once for each resource that it asks for, as it is before it has a node."""
        pod = {"metadata": {**(template.get("metadata") or {}), "name": ""}, "spec": template["spec"]}
        return tuple(replace(one, workload=workload, job="", node="") for one in cls.each_from_json(pod))

    @classmethod
    def occupying(cls, pod: Json) -> "GpuPod | None":
        """A pod that cannot be read: nobody else counts on the GPUs of its node. None: it is on none, or has ended."""
        spec, status = (part if isinstance(part := pod.get(key), dict) else {} for key in ("spec", "status"))
        node = spec.get("nodeName")
        if not node or not isinstance(node, str) or status.get("phase") in tuple(_ENDED):
            return None
        return cls(
            uid="",
            job="",
            workload="",
            index=-1,
            node=node,
            resource="",
            gpus=WHOLE_NODE,
            priority=0,
            asked=0.0,
            nominated=False,
            placement=Placement.from_json({}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a pod may run, as far as node selector, required node affinity and taints say."""

    selector: Mapping[str, str]
    terms: tuple[Json, ...]
    """Of the required node affinity: one must match. Empty: there is none."""
    tolerations: tuple[Json, ...]

    @classmethod
    def from_json(cls, spec: Json) -> "Placement":
        """Of a pod's spec, or a pod template's."""
        affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ) or {}
        return cls(
            selector=spec.get("nodeSelector") or {},
            terms=tuple(affinity.get("nodeSelectorTerms") or ()),
            tolerations=tuple(spec.get("tolerations") or ()),
        )

    def fits(self, node: GpuNode) -> bool:
        """Whether the scheduler would consider the node, were there room."""
        return (
            all(node.labels.get(key) == value for key, value in self.selector.items())
            and (not self.terms or any(_matches(term, node) for term in self.terms))
            and all(any(tolerates(one, taint) for one in self.tolerations) for taint in node.taints)
        )


def counted(pods: Iterable[GpuPod], nodes: Sequence[GpuNode]) -> Iterator[GpuPod]:
    """The pods that ask for what the nodes have, none for more than its node has.

    Left out are those that wait for more than any node has, too.
    """
    has = {(node.resource, node.name): node.gpus for node in nodes}
    most: dict[str, int] = {}
    for node in nodes:
        most[node.resource] = max(node.gpus, most.get(node.resource, 0))
    for pod in pods:
        for resource in (pod.resource,) if pod.resource else most:
            room = has.get((resource, pod.node), most.get(resource, 0))
            if pod.gpus <= room:
                yield pod
            elif pod.node and room:
                yield replace(pod, resource=resource, gpus=room)


def _asked(spec: Json) -> dict[str, int]:
    """How much of each extended resource. Containers run together, init containers one by one before them.

    Extended resources have a domain, and their limits are their requests. Raises ValueError.
    """

    def of(container: Json) -> dict[str, int]:
        resources = container.get("resources") or {}
        amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        return {name: quantity.count(amount) for name, amount in amounts.items() if "/" in name}

    together = Counter[str]()
    for container in spec.get("containers") or ():
        together.update(of(container))
    for container in spec.get("initContainers") or ():
        together |= Counter(of(container))
    return {name: amount for name, amount in together.items() if amount}


def _workload(meta: Json, labels: Mapping[str, str]) -> str:
    """By its controller. A Deployment's ReplicaSet is named after it and the hash that its pods are labelled with."""
    owner = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), None)
    if owner is None:
        return ""
    kind, name, ending = owner["kind"], owner["name"], f"-{labels.get('pod-template-hash')}"
    if kind == "ReplicaSet" and name.endswith(ending):
        kind, name = "Deployment", name.removesuffix(ending)
    return f"{meta.get('namespace', '')}/{kind}/{name}"


def _index(labels: Mapping[str, str], name: str) -> int:
    index = decimal_count(labels.get(LABEL_REPLICA_INDEX) or name.rpartition("-")[2])
    return -1 if index is None else index


def _matches(term: Json, node: GpuNode) -> bool:
    """An operator that is not known here (`Gt`, `Lt`), or one for fields, is left to the scheduler."""
    known = [one for one in term.get("matchExpressions") or () if one["operator"] not in {"Gt", "Lt"}]
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return False  # an empty term matches nothing
    return selects({"matchExpressions": known}, node.labels)
