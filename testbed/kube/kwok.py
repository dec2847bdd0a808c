"""kwok: nodes that only say that they run what is put on them, for scenarios of more nodes than this machine has.

It is a process of this machine under a service account and a role of its own. Its stages say what becomes of a pod, and
after how long (https://kwok.sigs.k8s.io/docs/user/stages-configuration/).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE, LABEL_JOB_ROLE, Role
from testbed.kube import addons, gomodules, waiting
from testbed.kube.controlplane import ControlPlane, free_ports
from testbed.kube.daemons import Daemon
from testbed.kube.kubectl import Kubectl, condition_of

LABELS: Final = {"type": "kwok"}
TAINT: Final = "kwok.x-k8s.io/node=fake:NoSchedule"
GPUS: Final = 8
"""Of a node."""

_NAME: Final = "kwok"
_ROLE: Final[dict[str, Any]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "kwok"},
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["nodes", "pods"],
            "verbs": ["get", "list", "watch", "patch", "update", "delete"],
        },
        {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch", "update"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    ],
}


def start(
    plane: ControlPlane,
    kubectl: Kubectl,
    *,
    nodes: int,
    worker_leaves: float = 0.0,
    other_leaves: float = 0.0,
    lease_seconds: int = 40,
    addresses: str = "10.0.0.1/24",
) -> None:
    """Start kwok and make tainted nodes; all of them are Ready when this returns.

    Args:
        plane: the cluster's control plane.
        kubectl: with an administrator's rights.
        nodes: how many.
        worker_leaves: seconds that a job's worker takes to end once it is told to.
        other_leaves: the same, of any other pod.
        lease_seconds: of a node's lease, of which a quarter passes between renewals. Kubernetes 1.34 gives up a node
            whose lease was not renewed for 50 s.
        addresses: the first one of the pods, and the width of the range.

    """
    kubectl.apply([addons.account("kube-system", _NAME), _ROLE, addons.binding("kube-system", _NAME, _NAME)])
    kubeconfig = addons.as_account(plane, kubectl, "kube-system", _NAME)
    built = gomodules.binaries(gomodules.DNS_KWOK)
    port = free_ports("127.0.0.1", 1)[0]
    process = plane.daemon(
        _NAME,
        str(built / "kwok"),
        f"--kubeconfig={kubeconfig}",
        *(f"--config={file}" for file in _stages(built / "source" / "kustomize" / "stage")),
        f"--config={_leaving(plane.state, worker_leaves, other_leaves)}",
        f"--node-lease-duration-seconds={lease_seconds}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--server-address=127.0.0.1:{port}",
        f"--cidr={addresses}",
    )
    process.start()
    kubectl.apply(_node(number) for number in range(nodes))
    selector = ",".join(f"{key}={value}" for key, value in LABELS.items())

    def ready() -> bool:
        found = kubectl.list("nodes", selector=selector)
        return sum(condition_of(node, "Ready") == "True" for node in found) == nodes

    waiting.until(f"{nodes} nodes of kwok are Ready", ready, within_seconds=60 + nodes, seen=process.tail)


def stop(plane: ControlPlane, kubectl: Kubectl) -> None:
    """Stop kwok, and remove its nodes with what runs on them."""
    Daemon.load(plane.state, _NAME).end()
    labels = (f"--selector={key}={value}" for key, value in LABELS.items())
    kubectl("delete", "nodes", *labels, "--wait=false", within_seconds=300)  # kubectl waits for one after the other


def _stages(folder: Path) -> Iterator[Path]:
    """kwok's own, but for the one that deletes pods."""
    for part in ("node/fast", "node/heartbeat-with-lease", "pod/fast"):
        files = sorted((folder / part).glob("*.yaml"))
        yield from (file for file in files if file.name not in {"kustomization.yaml", "pod-delete.yaml"})


def _leaving(state: Path, worker: float, other: float) -> Path:
    """Write the stages in which a pod ends, once it is told to."""
    file = state / "kwok-leaving.json"
    stages = (_delete("In", worker), _delete("NotIn", other))
    file.write_text("\n---\n".join(map(json.dumps, stages)))
    return file


def _delete(operator: str, seconds: float) -> dict[str, Any]:
    """The stage for workers (In), or for all other pods (NotIn)."""
    told = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    role = {"key": f'.metadata.labels["{LABEL_JOB_ROLE}"]', "operator": operator, "values": [Role.WORKER.value]}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"pod-delete-{operator.lower()}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [told, role]},
            "delay": {"durationMilliseconds": round(1000 * seconds)},
            "next": {"delete": True},
        },
    }


def _node(number: int) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU_RESOURCE: str(GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"kwok-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": LABELS},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room},
    }
