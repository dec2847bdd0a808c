"""What an HPA's status says that it will ask for."""

from typing import Any

import pytest

from hvd_elastic.decide.autoscale.hpa_demand import HpaDemand, coming_gpus
from tests.hvd_elastic.decide.autoscale.model_cluster import pod

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
    assert HpaDemand.from_json(hpa(metrics, values)) == HpaDemand(workload=WEB, replicas=replicas)


def test_no_more_than_its_most_replicas() -> None:
    assert HpaDemand.from_json(hpa([cpu(50)], [cpu_now(500)], most=6)).replicas == 6


def test_one_that_has_never_looked_asks_for_nothing() -> None:
    fresh = hpa([cpu(50)], [])
    del fresh["status"]
    assert HpaDemand.from_json(fresh).replicas == 0


def test_gpus_of_the_pods_that_are_not_there_yet() -> None:
    pods = [pod("a", workload=WEB, gpus=2, node="n"), pod("b", workload=WEB, gpus=2), pod("c", gpus=8)]
    leaving = pod("d", workload=WEB, gpus=2, node="n", leaving=True)
    demand = HpaDemand(workload=WEB, replicas=5)
    assert coming_gpus([demand], [*pods, leaving]) == 6
    assert coming_gpus([demand, HpaDemand(workload="prod/Deployment/other", replicas=9)], pods) == 6
    assert coming_gpus([HpaDemand(workload=WEB, replicas=1)], pods) == 0
