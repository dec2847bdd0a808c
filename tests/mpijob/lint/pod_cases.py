"""Parts of pods, and how many faults each has for the API server. The linter and a real one are held to them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

GPU: Final = "nvidia.com/gpu"


class PodCase(NamedTuple):
    """A value of one field of a pod or of its container."""

    value: Mapping[str, Any]
    faults: int


RESOURCES: Final = (
    PodCase({"limits": {GPU: 0.5}}, 1),
    PodCase({"limits": {GPU: "500m"}}, 1),
    PodCase({"limits": {GPU: "1k"}}, 0),
    PodCase({"limits": {GPU: 2}, "requests": {GPU: 1}}, 1),
    PodCase({"limits": {GPU: 2}, "requests": {GPU: "2"}}, 0),
    PodCase({"requests": {GPU: 1}}, 1),
    PodCase({"limits": {"rdma/hca": 1}, "requests": {"rdma/hca": 2}}, 1),
    PodCase({"limits": {"cpu": 2, "memory": "32Gi"}, "requests": {"cpu": 4, "memory": "64Gi"}}, 2),
    PodCase({"limits": {"cpu": 2}, "requests": {"cpu": "2000m"}}, 0),
    PodCase({"limits": {"cpu": 0.5}}, 0),
    PodCase({"limits": {"cpu": 1, "hugepages-2Mi": "512Mi"}}, 0),
    PodCase({"limits": {"hugepages-2Mi": "512Mi"}}, 1),
    PodCase({"limits": {"cpu": 1, "hugepages-2Mi": "512Mi"}, "requests": {"hugepages-2Mi": "256Mi"}}, 1),
    PodCase({"limits": {"example.kubernetes.io/thing": 2}, "requests": {"example.kubernetes.io/thing": 1}}, 0),
    PodCase({"limits": {GPU: -1}}, 1),
)
TOLERATIONS: Final = (
    PodCase({"key": "pool", "operator": "Exists", "value": "gpu"}, 1),
    PodCase({"key": "pool", "operator": "Equals", "value": "gpu"}, 1),
    PodCase({"key": "pool", "value": "gpu", "effect": "Noschedule"}, 1),
    PodCase({"key": "pool", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 20}, 1),
    PodCase({"key": "pool", "operator": "Exists", "tolerationSeconds": 20}, 1),
    PodCase({"value": "gpu"}, 1),
    PodCase({"key": "pool", "operator": "Equals", "effect": "Noschedule"}, 2),
    PodCase({"key": "pool", "value": "gpu", "effect": "NoSchedule"}, 0),
    PodCase({"operator": "Exists"}, 0),
    PodCase({"key": "pool", "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 20}, 0),
)
_SECRET: Final = {"secretKeyRef": {"name": "s", "key": "k"}}
_ADDRESS: Final = {"fieldRef": {"fieldPath": "status.podIP"}}
VARIABLES: Final = (
    PodCase({"name": "A", "value": "x", "valueFrom": _SECRET}, 1),
    PodCase({"name": "A", "valueFrom": {}}, 1),
    PodCase({"name": "A", "valueFrom": _ADDRESS | _SECRET}, 1),
    PodCase({"name": "", "value": "x"}, 1),
    PodCase({"name": "A", "value": "", "valueFrom": _ADDRESS}, 0),
    PodCase({"name": "A B", "value": "x"}, 0),
)
