"""What a HorizontalPodAutoscaler will ask for: replicas that its metrics call for and that are not there yet.

An HPA adds pods step by step, by default no more than the double in 15 seconds, so its metrics tell of a rise before
its pods do. Its rule, of `pkg/controller/podautoscaler` in Kubernetes: the replicas times the value of a metric over
its target, rounded up, of the metric that asks for most; nothing within a tolerance of 10%. From zero: the value over
the target, without tolerance.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from math import ceil
from typing import Any, Final

from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand
from hvd_elastic.system import quantity

_TOLERANCE: Final = Decimal("0.1")
"""Default of the controller manager's `--horizontal-pod-autoscaler-tolerance`."""
_DISABLED: Final = "ScalingDisabled"
"""Reason for which an HPA does nothing: somebody else has set its target to zero, a person or KEDA."""

Json = Mapping[str, Any]


def hpa_demand(hpa: Json) -> ScalerDemand:
    """A metric that has no value yet asks for nothing, nor does an HPA that is off."""
    meta, spec, status = hpa["metadata"], hpa["spec"], hpa.get("status") or {}
    target, current = spec["scaleTargetRef"], int(status.get("currentReplicas") or 0)
    metrics, values = spec.get("metrics") or (), status.get("currentMetrics") or ()
    called_for = _from_zero(metrics, values) if not current else _from(current, metrics, values)
    wished = 0 if _is_off(status) else max(called_for, int(status.get("desiredReplicas") or 0))
    return ScalerDemand(
        workload=f"{meta.get('namespace', '')}/{target['kind']}/{target['name']}",
        replicas=min(wished, int(spec["maxReplicas"])),
        from_zero=not current,
    )


def _is_off(status: Json) -> bool:
    return any(
        one["type"] == "ScalingActive" and one["status"] == "False" and one.get("reason") == _DISABLED
        for one in status.get("conditions") or ()
    )


def _from(current: int, metrics: Iterable[Json], values: Iterable[Json]) -> int:
    most = max((ratio for _, ratio in _ratios(metrics, values)), default=Decimal(0))
    return ceil(current * most) if most > 1 + _TOLERANCE else 0


def _from_zero(metrics: Iterable[Json], values: Iterable[Json]) -> int:
    """By whole values alone: an average over no pod is no number, and the controller writes one all the same."""
    return max((ceil(ratio) for key, ratio in _ratios(metrics, values) if key == "value"), default=0)


def _ratios(metrics: Iterable[Json], values: Iterable[Json]) -> Iterator[tuple[str, Decimal]]:
    """Of each metric that has a value: how it counts, and it over its target. The controller writes them in the order
    of the spec.
    """
    for metric, value in zip(metrics, values, strict=False):
        kind = str(metric["type"])
        source = kind[:1].lower() + kind[1:]
        if value.get("type") != kind:
            continue
        target, current = metric[source]["target"], value[source]["current"]
        for key in ("averageUtilization", "averageValue", "value"):
            # Of a utilization the status tells the average value too, but its target does not.
            if target.get(key) is not None and current.get(key) is not None:
                yield key, _number(current[key]) / _number(target[key])


def _number(value: object) -> Decimal:
    return Decimal(value) if isinstance(value, int) else quantity.parse(str(value))
