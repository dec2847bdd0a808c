"""Parts of pods, and how many faults each has for the API server. The linter and a real one (Kubernetes 1.34.4) are
held to them.
"""

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


def pod(**fields: Any) -> dict[str, Any]:
    """A pod's spec with these fields."""
    return {"containers": [{}], **fields}


def container(*, volumes: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """A pod's spec with one container that has these fields, and with empty volumes."""
    return {"containers": [fields], "volumes": [{"name": name, "emptyDir": {}} for name in volumes]}


def volume(**fields: Any) -> dict[str, Any]:
    return pod(volumes=[{"name": "data", **fields}])


def mount(**fields: Any) -> dict[str, Any]:
    return container(volumes=("data",), volumeMounts=[{"name": "data", "mountPath": "/data", **fields}])


def node_term(**expression: Any) -> dict[str, Any]:
    return pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}})


def preferred(weight: int) -> dict[str, Any]:
    term = {"weight": weight, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    return pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})


def spread(**fields: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}
    return pod(topologySpreadConstraints=[constraint])


def limits(**amounts: Any) -> dict[str, Any]:
    return container(resources={"limits": amounts})


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_EXEC: Final = {"exec": {"command": ["true"]}}

REFUSED: Final[tuple[dict[str, Any], ...]] = (
    container(name="A_b"),
    container(name=""),
    container(name="a" * 64),
    container(image=""),
    container(imagePullPolicy="always"),
    container(terminationMessagePolicy="x"),
    container(ports=[{"containerPort": 0}]),
    container(ports=[{"containerPort": 70_000}]),
    container(ports=[{"containerPort": 1, "protocol": "tcp"}]),
    container(ports=[{"containerPort": 1, "name": "Ssh_Port"}]),
    container(ports=[{"containerPort": 1, "name": "a" * 16}]),
    mount(mountPath=None),
    mount(subPath="/b"),
    mount(subPath="../b"),
    mount(mountPropagation="private"),
    container(volumeMounts=[{"name": "x", "mountPath": "/x"}]),
    limits(gpu=1),
    limits(CPU=1),
    limits(storage="1Gi"),
    limits(cpu=1, hugepages="1Gi"),
    limits(**{"requests.cpu": 1}),
    limits(**{"nvidia.com/g u": 1}),
    container(securityContext={"privileged": True, "allowPrivilegeEscalation": False}),
    container(securityContext={"runAsUser": -1}),
    container(securityContext={"seccompProfile": {"type": "runtime/default"}}),
    container(readinessProbe={}),
    container(readinessProbe=_EXEC | {"tcpSocket": {"port": 1}}),
    container(readinessProbe=_EXEC | {"periodSeconds": -1}),
    container(readinessProbe={"tcpSocket": {"port": "22"}}),
    container(readinessProbe={"httpGet": {"path": "/"}}),
    container(readinessProbe={"httpGet": {"port": 1, "scheme": "https"}}),
    container(livenessProbe=_EXEC | {"successThreshold": 2}),
    container(lifecycle={"preStop": {}}),
    container(lifecycle={"preStop": _EXEC | {"sleep": {"seconds": 1}}}),
    container(envFrom=[{}]),
    container(envFrom=[{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]),
    container(envFrom=[{"secretRef": {"name": "A_b"}}]),
    container(envFrom=[{"secretRef": {}}]),
    container(env=[{"name": "a=b", "value": "1"}]),
    container(env=[{"name": "a", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
    container(env=[{"name": "a", "valueFrom": {"configMapKeyRef": {"key": "k"}}}]),
    pod(activeDeadlineSeconds=0),
    pod(dnsPolicy="none"),
    pod(dnsPolicy="None"),
    pod(nodeSelector={"a b": "x"}),
    pod(nodeSelector={"gpu": "NVIDIA A100"}),
    pod(nodeSelector={"gpu": "a" * 64}),
    pod(nodeSelector={"a/b/c": "x"}),
    pod(tolerations=[{"key": "a b", "operator": "Exists"}]),
    pod(tolerations=[{"key": "a", "value": "x y"}]),
    node_term(key="a", operator="in", values=["b"]),
    node_term(key="a", operator="In"),
    node_term(key="a", operator="Exists", values=["b"]),
    node_term(key="a b", operator="Exists"),
    preferred(0),
    preferred(101),
    pod(affinity={"podAntiAffinity": {_REQUIRED: [{"labelSelector": {"matchLabels": {"a": "b"}}}]}}),
    spread(maxSkew=0),
    spread(whenUnsatisfiable="Never"),
    spread(topologyKey=None),
    volume(name="my_volume", emptyDir={}),
    volume(name=None, emptyDir={}),
    volume(emptyDir={}, hostPath={"path": "/a"}),
    volume(hostPath={"path": "/a", "type": "dir"}),
    volume(persistentVolumeClaim={}),
    volume(persistentVolumeClaim={"claimName": ""}),
    volume(configMap={}),
    volume(configMap={"name": "x", "defaultMode": 755}),
    volume(secret={}),
    volume(nfs={"path": "/a"}),
    volume(csi={}),
    pod(securityContext={"fsGroup": -1}),
    pod(securityContext={"fsGroupChangePolicy": "onRootMismatch"}),
    pod(serviceAccountName="A_b"),
    container(volumes=("data", "data")),
    mount() | {"volumes": []},
    {"containers": [{}, {}]},
)
"""Pods that the API server refuses, and the linter finds."""

LEFT_TO_THE_API_SERVER: Final[tuple[dict[str, Any], ...]] = (
    container(image=" a"),
    container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
    container(ports=[{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
    limits(cpu=1, **{"hugepages-2Mi": "3Mi"}),
    container(resources={"claims": [{"name": "x"}]}),
    container(securityContext={"seccompProfile": {"type": "Localhost"}}),
    container(readinessProbe={"exec": {}}),
    container(lifecycle={"preStop": {"sleep": {"seconds": 60}}}),
    container(env=[{"name": "a", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a b"}}}]),
    container(env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]),
    pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": []}}}),
    volume(hostPath={"path": "/a/../b"}),
    volume(nfs={"server": "s", "path": "a"}),
    pod(initContainers=[{"name": "i", "livenessProbe": _EXEC}]),
    pod(initContainers=[{"name": "main"}]),
    pod(hostAliases=[{"ip": "x", "hostnames": ["a"]}]),
    pod(hostPID=True, shareProcessNamespace=True),
)
"""Pods that it refuses too, and the linter does not find."""

TAKEN: Final[tuple[dict[str, Any], ...]] = (
    pod(),
    mount(mountPath="a:b"),
    limits(cpu=1, **{"nvidia/gpu": 1}),
    container(readinessProbe={"httpGet": {"port": "http-1"}}),
    container(readinessProbe=_EXEC | {"periodSeconds": 0}),
    container(lifecycle={"preStop": {"sleep": {"seconds": 0}}}),
    container(env=[{"name": "1 a", "value": "1"}]),
    container(imagePullPolicy=""),
    pod(terminationGracePeriodSeconds=-1),
    pod(dnsPolicy="None", dnsConfig={"nameservers": ["192.0.2.1"]}),
    pod(nodeSelector={"gpu": ""}),
    node_term(key="a", operator="Gt", values=["b"]),
    volume(),
    volume(emptyDir={"medium": "memory"}),
    volume(configMap={"name": "x", "defaultMode": 0o755}),
    pod(imagePullSecrets=[{}]),
    pod(schedulerName="x y"),
    pod(tolerations=[{"key": "a", "operator": "Exists"}] * 2),
)
"""Pods that it takes, and of which the linter says nothing of that kind."""

REPEATED: Final[tuple[dict[str, Any], ...]] = (
    container(env=[{"name": "A"}, {"name": "A"}]),
    container(ports=[{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]),
    pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
    pod(hostAliases=[{"ip": "192.0.2.1", "hostnames": ["a"]}] * 2),
)
"""Pods that it takes, but not in an MPIJob of v2beta1."""


def whole(spec: dict[str, Any], **of_all: Any) -> dict[str, Any]:
    """The spec with what each container must have, and `of_all` besides. None removes."""
    base = {"name": "main", "image": "example.com/train:1", **of_all}
    lists = {key: [base | one for one in spec[key]] for key in ("containers", "initContainers") if key in spec}
    kept: dict[str, Any] = _without_none(spec | lists)
    return kept


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
