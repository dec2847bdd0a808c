"""What an HPA's status says that it will ask for."""

from typing import Any

import pytest

from hvd_elastic.decide.autoscale.forecast.hpa_demand import hpa_demand
from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand

WEB = "prod/Deployment/web"


def hpa(
    metrics: list[Any], values: list[Any], *, current: int = 4, desired: int = 4, most: int = 100
) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "prod"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "maxReplicas": most,
            "metrics": metrics,
        },
        "status": {"currentReplicas": current, "desiredReplicas": desired, "currentMetrics": values},
    }


def cpu(utilization: int) -> Any:
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": utilization}}}


def cpu_now(utilization: int) -> Any:
    current = {"averageUtilization": utilization, "averageValue": "1500m"}
    return {"type": "Resource", "resource": {"name": "cpu", "current": current}}


def queue(**target: str) -> Any:
    return {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}


def queue_now(**current: str) -> Any:
    return {"type": "External", "external": {"metric": {"name": "queue"}, "current": current}}


@pytest.mark.parametrize(
    ("metrics", "values", "replicas"),
    [
        ([cpu(50)], [cpu_now(90)], 8),
        ([cpu(50)], [cpu_now(55)], 4),  # within the tolerance
        ([cpu(50)], [cpu_now(10)], 4),  # it will shrink, but not before its time
        ([queue(averageValue="500m")], [queue_now(averageValue="2")], 16),
        ([queue(value="10")], [queue_now(value="12500m")], 5),
        ([cpu(50), queue(averageValue="1k")], [cpu_now(75), queue_now(averageValue="2k")], 8),
        ([cpu(50), queue(averageValue="1k")], [{"type": ""}, queue_now(averageValue="2k")], 8),  # one has no value
        ([cpu(50)], [], 4),
    ],
)
def test_the_metric_that_asks_for_most_counts(metrics: list[Any], values: list[Any], replicas: int) -> None:
    assert hpa_demand(hpa(metrics, values)) == ScalerDemand(workload=WEB, replicas=replicas)


def test_no_more_than_its_most_replicas() -> None:
    assert hpa_demand(hpa([cpu(50)], [cpu_now(500)], most=6)).replicas == 6


def test_one_that_has_never_looked_asks_for_nothing() -> None:
    fresh = hpa([cpu(50)], [])
    del fresh["status"]
    assert hpa_demand(fresh).replicas == 0


@pytest.mark.parametrize(
    ("metrics", "values", "replicas"),
    [
        ([queue(value="10")], [queue_now(value="31")], 4),
        ([queue(value="10")], [queue_now(value="500m")], 1),  # no tolerance: one request wakes it
        ([queue(value="10")], [queue_now(value="0")], 0),
        # 1.37 divides by the pods that are not there, and writes what the processor makes of that.
        ([queue(averageValue="10")], [queue_now(averageValue="-9223372036854775808m")], 0),
        ([queue(averageValue="10")], [queue_now(averageValue="9223372036854775807m")], 0),
    ],
)
def test_from_zero_the_whole_value_counts(metrics: list[Any], values: list[Any], replicas: int) -> None:
    asleep = hpa(metrics, values, current=0, desired=0)
    asleep["status"]["conditions"] = [
        {"type": "AbleToScale", "status": "True", "reason": "SucceededGetScale"},
        {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
        {"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero"},
    ]
    assert hpa_demand(asleep) == ScalerDemand(workload=WEB, replicas=replicas, from_zero=True)


def test_from_zero_an_average_counts_by_what_the_hpa_has_decided() -> None:
    waking = hpa([queue(averageValue="10")], [queue_now(averageValue="-9223372036854775808m")], current=0, desired=4)
    assert hpa_demand(waking).replicas == 4


def test_one_whose_target_somebody_else_has_set_to_zero_asks_for_nothing() -> None:
    """As KEDA does: its HPA keeps the values that it last read."""
    off = hpa([queue(value="10")], [queue_now(value="31")], current=0, desired=2)
    off["status"]["conditions"] = [{"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled"}]
    assert hpa_demand(off) == ScalerDemand(workload=WEB, replicas=0, from_zero=True)
    blind = hpa([queue(value="10")], [], current=2, desired=3)
    blind["status"]["conditions"] = [{"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric"}]
    assert hpa_demand(blind).replicas == 3
