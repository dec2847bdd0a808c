"""What HorizontalPodAutoscalers will ask for: GPUs of replicas that their metrics call for and that are not there yet.

An HPA adds pods step by step, by default no more than the double in 15 seconds, so its metrics tell of a rise before
its pods do. Its rule, of `pkg/controller/podautoscaler` in Kubernetes: the replicas times the value of a metric over
its target, rounded up, of the metric that asks for most; nothing within a tolerance of 10%.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any, Final

from hvd_elastic.decide.autoscale.shared_cluster import GpuPod
from hvd_elastic.system import quantity

HPA_PATH: Final = "/apis/autoscaling/v2/horizontalpodautoscalers"
_TOLERANCE: Final = Decimal("0.1")
"""Default of the controller manager's `--horizontal-pod-autoscaler-tolerance`."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaDemand:
    """What one HPA will ask for."""

    workload: str
    """`NAMESPACE/KIND/NAME` of what it scales."""
    replicas: int
    """That it will have, if its metrics stay as they are."""

    @classmethod
    def from_json(cls, hpa: Json) -> "HpaDemand":
        """A metric that has no value yet asks for nothing."""
        meta, spec, status = hpa["metadata"], hpa["spec"], hpa.get("status") or {}
        target, current = spec["scaleTargetRef"], int(status.get("currentReplicas") or 0)
        most = max(_ratios(spec.get("metrics") or (), status.get("currentMetrics") or ()), default=Decimal(0))
        called_for = ceil(current * most) if most > 1 + _TOLERANCE else 0
        wished = max(called_for, int(status.get("desiredReplicas") or 0))
        return cls(
            workload=f"{meta.get('namespace', '')}/{target['kind']}/{target['name']}",
            replicas=min(wished, int(spec["maxReplicas"])),
        )


def coming_gpus(demands: Iterable[HpaDemand], pods: Iterable[GpuPod]) -> int:
    """GPUs that will be asked for. A workload without a pod is left out: nobody knows what its pods will ask for."""
    there: dict[str, list[int]] = {}
    for pod in pods:
        if not pod.leaving:
            there.setdefault(pod.workload, []).append(pod.gpus)
    return sum(
        max(0, demand.replicas - len(there[demand.workload])) * max(there[demand.workload])
        for demand in demands
        if demand.workload in there
    )


def _ratios(metrics: Iterable[Json], values: Iterable[Json]) -> Iterator[Decimal]:
    """Of each metric that has a value, over its target. The controller writes them in the order of the spec."""
    for metric, value in zip(metrics, values, strict=False):
        kind = str(metric["type"])
        source = kind[:1].lower() + kind[1:]
        if value.get("type") != kind:
            continue
        target, current = metric[source]["target"], value[source]["current"]
        for key in ("averageUtilization", "averageValue", "value"):
            # Of a utilization the status tells the average value too, but its target does not.
            if target.get(key) is not None and current.get(key) is not None:
                yield _number(current[key]) / _number(target[key])


def _number(value: object) -> Decimal:
    return Decimal(value) if isinstance(value, int) else quantity.parse(str(value))
