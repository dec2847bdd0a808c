"""What KEDA will do with a workload that it has scaled to zero, by a ScaledObject as its operator writes it."""

from typing import Any

import pytest

from hvd_elastic.decide.autoscale.forecast.scaled_object import scaled_object_demand
from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand


def scaled(active: str, *, paused: str = "False", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "chat", "namespace": "serving"},
        "spec": {
            "scaleTargetRef": {"name": "chat"},
            "triggers": [{"type": "external-push", "metadata": {"scalerAddress": "scaler.keda:9090"}}],
            **spec,
        },
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "ScaledObjectReady"},
                {"type": "Active", "status": active, "reason": "ScalerActive"},
                {"type": "Fallback", "status": "False", "reason": "NoFallbackFound"},
                {"type": "Paused", "status": paused, "reason": "ScaledObjectUnpaused"},
            ],
            "hpaName": "keda-hpa-chat",
            "scaleTargetGVKR": {"group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments"},
            "scaleTargetKind": "apps/v1.Deployment",
        },
    }


@pytest.mark.parametrize(
    ("one", "replicas"),
    [
        (scaled("True"), 1),
        (scaled("True", minReplicaCount=0), 1),
        (scaled("True", minReplicaCount=3, idleReplicaCount=0), 3),
        (scaled("True", minReplicaCount=3, maxReplicaCount=2), 2),
        (scaled("False", minReplicaCount=3), 0),
        (scaled("Unknown"), 0),
        (scaled("True", paused="True"), 0),
    ],
)
def test_a_trigger_that_is_active_brings_the_least_replicas(one: dict[str, Any], replicas: int) -> None:
    assert scaled_object_demand(one) == ScalerDemand(workload="serving/Deployment/chat", replicas=replicas)


def test_the_kind_of_its_target_is_that_which_it_names() -> None:
    named = scaled("True", scaleTargetRef={"kind": "StatefulSet", "name": "chat"})
    assert scaled_object_demand(named).workload == "serving/StatefulSet/chat"
    fresh = scaled("True")
    del fresh["status"]
    assert scaled_object_demand(fresh) == ScalerDemand(workload="serving/Deployment/chat", replicas=0)
