"""Where pods run: workers on spot nodes with the right GPU, the launcher on demand, all of them in one zone."""

from copy import deepcopy

from hvd_elastic.mpijob.clouds.cloud_nodes import GPU_TOLERATION, NODES, Requirement, Term, one_of, tolerated
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import Capacity, Cloud, JobSpec
from hvd_elastic.mpijob.manifests.manifest import Manifest, pods_of, pruned
from hvd_elastic.mpijob.manifests.supporting.shared_storage import required_zone

_ZONE = "topology.kubernetes.io/zone"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_GRACE_SECONDS = 30
"""Kubernetes' own default; a worker leaves as soon as its process has left."""


def grace_seconds(spec: JobSpec) -> int:
    """`terminationGracePeriodSeconds` of workers."""
    if spec.workers.grace is not None:
        return spec.workers.grace
    return min(_GRACE_SECONDS, spot_grace_limit(spec) or _GRACE_SECONDS)


def spot_grace_limit(spec: JobSpec) -> int | None:
    """How long the cloud's reclaimed machines wait; None where no worker runs on one."""
    return None if spec.capacity is Capacity.ON_DEMAND else NODES[spec.cloud].spot_grace_seconds


def zones(spec: JobSpec) -> list[str]:
    """Zones that may be used; the file system's own where it lives in one."""
    zone = required_zone(spec)
    return [zone] if zone else spec.zones


def one_zone(spec: JobSpec) -> bool:
    """Whether the pods must be kept together; needless where only one zone may be used."""
    wanted = spec.cloud is not Cloud.ANY if spec.one_zone is None else spec.one_zone
    return wanted and len(zones(spec)) != 1


def affinity(spec: JobSpec, role: Role) -> Manifest | None:
    """`affinity` of a pod, None where any node will do."""
    terms = _worker_terms(spec) if role is Role.WORKER else _launcher_terms(spec)
    node = pruned(
        requiredDuringSchedulingIgnoredDuringExecution=_required(terms),
        preferredDuringSchedulingIgnoredDuringExecution=_preferred(spec) if role is Role.WORKER else None,
    )
    return pruned(nodeAffinity=node, podAffinity=_together(spec) if one_zone(spec) else None) or None


def tolerations(spec: JobSpec, role: Role) -> list[Manifest]:
    """Spot and GPU taints for workers only: the launcher must outlive a spot node. Lost nodes for both."""
    lost = [
        {**tolerated(f"node.kubernetes.io/{state}", effect="NoExecute"), "tolerationSeconds": spec.lost_node}
        for state in ("not-ready", "unreachable")
    ]
    if role is Role.LAUNCHER:
        return lost
    spot = [] if spec.capacity is Capacity.ON_DEMAND else list(NODES[spec.cloud].spot_tolerations)
    gpu = [GPU_TOLERATION] if spec.workers.gpus else []
    own = [tolerated(taint.key, taint.value, taint.effect) for taint in spec.tolerations]
    return deepcopy([*spot, *gpu, *own, *lost])


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
    """Terms are alternatives. An empty one would match no node at all; where one asks for nothing, any node will do."""
    if not all(terms):
        return None
    different: list[list[Requirement]] = []
    for term in map(list, deepcopy(terms)):
        if term not in different:
            different.append(term)
    return {"nodeSelectorTerms": [{"matchExpressions": term} for term in different]}


def _preferred(spec: JobSpec) -> list[Manifest]:
    if spec.capacity is not Capacity.PREFER_SPOT:
        return []
    spot = [list(deepcopy(provisioner.spot)) for provisioner in NODES[spec.cloud].provisioners if provisioner.spot]
    return [{"weight": 100, "preference": {"matchExpressions": term}} for term in spot]


def _together(spec: JobSpec) -> Manifest:
    """The first pod picks the zone: a required affinity that only the pod itself meets lets it through."""
    term = {"labelSelector": {"matchLabels": pods_of(spec)}, "topologyKey": _ZONE}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
