"""What a scaler calls for, and how many GPUs its workload will ask for beyond those that it has."""

from collections.abc import Iterable
from dataclasses import dataclass

from hvd_elastic.decide.autoscale.shared_cluster import GpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerDemand:
    """What one scaler calls for."""

    workload: str
    """`NAMESPACE/KIND/NAME` of what it scales."""
    replicas: int
    """That it will have, if its metrics stay as they are."""
    from_zero: bool = False
    """Whether it had none when its scaler last looked."""


def starting(demands: Iterable[ScalerDemand], pods: Iterable[GpuPod]) -> list[str]:
    """Workloads that are called back from zero and have no pod yet: only their templates tell what they will ask for.

    Of others without a pod that has a GPU nothing is read: most workloads of a cluster have none.
    """
    known = tuple(demands)
    at_zero = {one.workload for one in known if one.from_zero}
    called = {one.workload for one in known if one.replicas}
    return sorted((at_zero & called) - {pod.workload for pod in pods})


def coming_gpus(demands: Iterable[ScalerDemand], pods: Iterable[GpuPod], templates: Iterable[GpuPod] = ()) -> int:
    """GPUs that will be asked for. `templates`: what a pod of a workload will ask for that has none yet.

    A workload of which neither is known is left out. Of two scalers of one workload the larger number counts.
    """
    there: dict[str, list[int]] = {}
    for pod in pods:
        if not pod.leaving:
            there.setdefault(pod.workload, []).append(pod.gpus)
    size = {template.workload: template.gpus for template in templates} | {name: max(of) for name, of in there.items()}
    called_for: dict[str, int] = {}
    for demand in demands:
        called_for[demand.workload] = max(demand.replicas, called_for.get(demand.workload, 0))
    return sum(
        max(0, replicas - len(there.get(workload, ()))) * size.get(workload, 0)
        for workload, replicas in called_for.items()
    )
