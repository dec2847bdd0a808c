"""Where pods run: workers on spot nodes with the right GPU and in one zone, the launcher on demand and in any zone."""

from copy import deepcopy

from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.clouds.cloud_nodes import (
    NODES,
    Requirement,
    Term,
    one_of,
    spot_grace_limit,
    tolerated,
)
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec, Toleration
from hvd_elastic.mpijob.description.mounts import required_zone
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, pod_selector, without_empty

_ZONE = "topology.kubernetes.io/zone"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_GRACE_SECONDS = 30
"""The default of Kubernetes. A worker ends as soon as its training process has ended."""


def grace_seconds(spec: JobSpec) -> int:
    """`terminationGracePeriodSeconds` of workers."""
    if spec.workers.grace is not None:
        return spec.workers.grace
    return min(_GRACE_SECONDS, spot_grace_limit(spec.cloud, spec.capacity) or _GRACE_SECONDS)


def zones(spec: JobSpec) -> list[str]:
    """Zones that pods may run in: the zone of the file system if it lives in one, else the zones of the description."""
    zone = required_zone(spec)
    return [zone] if zone else spec.zones


def one_zone(spec: JobSpec) -> bool:
    """Whether an affinity must keep the workers in one zone. False if only one zone is allowed anyway."""
    wanted = spec.cloud is not Cloud.ANY if spec.one_zone is None else spec.one_zone
    return wanted and len(zones(spec)) != 1


def affinity(spec: JobSpec, role: Role) -> Manifest | None:
    """`affinity` of a pod. None: any node will do."""
    terms = _worker_terms(spec) if role is Role.WORKER else _launcher_terms(spec)
    node = without_empty(
        requiredDuringSchedulingIgnoredDuringExecution=_required(terms),
        preferredDuringSchedulingIgnoredDuringExecution=_preferred(spec) if role is Role.WORKER else None,
    )
    together = _same_zone(spec) if role is Role.WORKER and one_zone(spec) else None
    return without_empty(nodeAffinity=node, podAffinity=together) or None


def tolerations(spec: JobSpec, role: Role) -> list[Manifest]:
    """`tolerations` of a pod.

    Only workers tolerate the taints of spot nodes and GPU nodes, because the launcher must outlive a spot node. Both
    tolerate a lost node for `lost_node` seconds, also beside one that tolerates every taint for ever: of all that
    tolerate a taint the first counts (Kubernetes' component-helpers, GetMatchingTolerations).
    """
    lost = [
        {**tolerated(f"node.kubernetes.io/{state}", effect="NoExecute"), "tolerationSeconds": spec.lost_node}
        for state in ("not-ready", "unreachable")
    ]
    if role is Role.LAUNCHER:
        return lost
    spot = [] if spec.capacity is Capacity.ON_DEMAND else list(NODES[spec.cloud].spot_tolerations)
    gpu = [tolerated(taint) for taint in spec.accelerator.taints] if spec.workers.gpus else []
    named = [_toleration(each) for each in spec.tolerations if each.key is not None]
    every_taint = [_toleration(each) for each in spec.tolerations if each.key is None]
    return [*deepcopy(spot), *gpu, *named, *lost, *every_taint]


def _toleration(taint: Toleration) -> Manifest:
    return without_empty(
        key=taint.key,
        operator=taint.operator or ("Exists" if taint.value is None else "Equal"),
        value=taint.value,
        effect=taint.effect,
        tolerationSeconds=taint.seconds,
    )


def _worker_terms(spec: JobSpec) -> list[Term]:
    own = _labels(spec, spec.node_labels)
    if spec.instance_type:
        own = (*own, one_of(_INSTANCE_TYPE, spec.instance_type))
    terms: list[Term] = []
    for provisioner in NODES[spec.cloud].provisioners:
        by_capacity = {Capacity.SPOT: provisioner.spot, Capacity.ON_DEMAND: provisioner.on_demand}
        gpu = provisioner.gpus.get(spec.gpu_type, ()) if spec.gpu_type else ()
        terms.append((*by_capacity.get(spec.capacity, ()), *gpu, *own))
    return terms


def _launcher_terms(spec: JobSpec) -> list[Term]:
    own = _labels(spec, spec.launcher_node_labels)
    return [(*provisioner.on_demand, *own) for provisioner in NODES[spec.cloud].provisioners]


def _labels(spec: JobSpec, wanted: dict[str, str]) -> Term:
    zone = (one_of(_ZONE, *zones(spec)),) if zones(spec) else ()
    return (*zone, *(one_of(key, value) for key, value in wanted.items()))


def _required(terms: list[Term]) -> Manifest | None:
    """The terms as a node selector, in which one match is enough. None if a term has no requirements: any node will do.

    Kubernetes reads an empty term differently: it matches no node.
    """
    if not all(terms):
        return None
    distinct: list[list[Requirement]] = []
    for term in map(list, deepcopy(terms)):
        if term not in distinct:
            distinct.append(term)
    return {"nodeSelectorTerms": [{"matchExpressions": term} for term in distinct]}


def _preferred(spec: JobSpec) -> list[Manifest]:
    if spec.capacity is not Capacity.PREFER_SPOT:
        return []
    spot = [list(deepcopy(provisioner.spot)) for provisioner in NODES[spec.cloud].provisioners if provisioner.spot]
    return [{"weight": 100, "preference": {"matchExpressions": term}} for term in spot]


def _same_zone(spec: JobSpec) -> Manifest:
    """All workers in one zone, which the first of them picks: Kubernetes lets a pod pass that is the only one to match.

    The launcher does not count, and has no such rule: it finds a node at once, in a zone that may have no GPU to spare.
    Not even a preference, which kube-scheduler reads both ways: it would draw the workers to the launcher's zone
    (Kubernetes 1.34, `pkg/scheduler/framework/plugins/interpodaffinity/scoring.go`, `processExistingPod`).
    """
    term = {"labelSelector": {"matchLabels": pod_selector(spec, Role.WORKER)}, "topologyKey": _ZONE}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
