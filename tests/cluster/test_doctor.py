"""`doctor` on a real cluster: it alarms nobody without cause, and finds what was made wrong on purpose."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.doctor.diagnosis import Diagnosis, Level
from hvd_elastic.client.doctor.examination import examine
from hvd_elastic.client.doctor.fact_reader import FactReader
from testbed.cluster import jobs
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube import waiting
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

Seed = Callable[[Kubectl], contextlib.AbstractContextManager[None]]

OPERATOR = "mpi-operator"
KNOWN = {("network-policies", Level.WARNING)}
"""What this cluster really lacks: a network plugin with policies."""


@pytest.fixture(scope="module")
def here(cluster: Site) -> Iterator[Kubectl]:
    jobs.priority_classes(cluster)
    yield make_namespace(cluster, "doctor")
    remove_namespace(cluster, "doctor")


def examined(kubectl: Kubectl, *, impersonate: str | None = None, namespace: str = "") -> list[Diagnosis]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubectl.kubeconfig))
        cluster = ClusterClient.connect(namespace=namespace or kubectl.namespace, impersonate=impersonate)
    return examine(FactReader(cluster, cluster.namespace).read())


def bad(findings: list[Diagnosis]) -> set[tuple[str, Level]]:
    return {(one.check, one.verdict.level) for one in findings if one.verdict.level is not Level.OK}


@contextlib.contextmanager
def applied(kubectl: Kubectl, *manifests: dict[str, Any]) -> Iterator[None]:
    """These objects are there in place of what has their names, and what was there comes back."""
    everywhere = kubectl.within("default")
    kinds = [(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in manifests]
    before = [_within(everywhere, space).find(kind, name) for kind, name, space in kinds]
    for one, (kind, name, space), old in zip(manifests, kinds, before, strict=True):
        if old:
            _within(everywhere, space)("delete", kind, name, "--wait=true")
        everywhere.apply([one])
    try:
        yield
    finally:
        for (kind, name, space), old in zip(kinds, before, strict=True):
            _within(everywhere, space)("delete", kind, name, "--wait=true", "--ignore-not-found")
            if old:
                kept = {key: old["metadata"][key] for key in ("name", "namespace", "labels") if key in old["metadata"]}
                everywhere.apply([{**old, "metadata": kept}])


def _within(kubectl: Kubectl, space: str | None) -> Kubectl:
    return kubectl.within(space) if space else kubectl


@contextlib.contextmanager
def patched(kubectl: Kubectl, kind: str, name: str, value: Any, undo: Any) -> Iterator[None]:
    kubectl.patch(kind, name, value)
    try:
        yield
    finally:
        kubectl.patch(kind, name, undo)


def made(kubectl: Kubectl, kind: str, version: str, name: str, **content: Any) -> dict[str, Any]:
    """An object of the test's namespace."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": kubectl.namespace},
        **content,
    }


def priority_class(name: str, value: int, *, preempts: bool = False, default: bool = False) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": default,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }


def deployment(namespace: str, name: str, image: str, *arguments: str, account: str = "default") -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": image, "args": list(arguments)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": account, "containers": [container]},
            },
        },
    }


def quota(kubectl: Kubectl, hard: dict[str, str], classes: tuple[str, ...] = ()) -> dict[str, Any]:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}]}
    spec = {"hard": hard, **({"scopeSelector": selector} if classes else {})}
    return made(kubectl, "ResourceQuota", "v1", "seeded", spec=spec)


def limits(kubectl: Kubectl, **limit: Any) -> dict[str, Any]:
    return made(kubectl, "LimitRange", "v1", "seeded", spec={"limits": [{"type": "Container", **limit}]})


def suspended_stock_job(kubectl: Kubectl) -> dict[str, Any]:
    """An MPIJob on Horovod as it is published, without pods."""
    command = ["horovodrun", "-np", "1", "--min-np", "1", "true"]
    launcher = {"name": "launcher", "image": "horovod/horovod:0.28.1", "command": command}
    worker = {"name": "worker", "image": "horovod/horovod:0.28.1"}
    replicas = {
        role: {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        for role, container in (("Launcher", launcher), ("Worker", worker))
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "seeded", "namespace": kubectl.namespace},
        "spec": {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": replicas},
    }


def storage_class(name: str) -> dict[str, Any]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "example.com/none",
    }


def webhook(kubectl: Kubectl, *, matching: str) -> dict[str, Any]:
    """It must admit pods, its service does not exist, and it looks at one namespace only."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "seeded"},
        "webhooks": [
            {
                "name": "pods.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"service": {"namespace": kubectl.namespace, "name": "away", "path": "/"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": matching}},
            }
        ],
    }


def operator_binding(name: str, account: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": OPERATOR}],
    }


@contextlib.contextmanager
def fake_node(
    kubectl: Kubectl, *, kubelet: str = "v1.34.4", capacity: str = "0", allocatable: str = "0"
) -> Iterator[None]:
    """A node without a kubelet: nobody is placed there, for it is cordoned."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "seeded"},
        "spec": {"unschedulable": True},
    }
    everywhere = kubectl.within("default")
    with applied(everywhere, node):
        status = {
            "nodeInfo": {**everywhere.get("node", "spot")["status"]["nodeInfo"], "kubeletVersion": kubelet},
            "capacity": {"nvidia.com/gpu": capacity},
            "allocatable": {"nvidia.com/gpu": allocatable},
        }
        everywhere.patch("node", "seeded", {"status": status}, subresource="status")
        yield


@contextlib.contextmanager
def tainted(kubectl: Kubectl, *nodes: str) -> Iterator[None]:
    """Nobody tolerates this taint, and no pod that runs is ended by it."""
    for node in nodes:
        kubectl("taint", "node", node, "example.com/team=other:NoSchedule")
    try:
        yield
    finally:
        for node in nodes:
            kubectl("taint", "node", node, "example.com/team-")


@contextlib.contextmanager
def meshed(kubectl: Kubectl) -> Iterator[None]:
    kubectl("annotate", "namespace", kubectl.namespace, "linkerd.io/inject=enabled")
    try:
        yield
    finally:
        kubectl("annotate", "namespace", kubectl.namespace, "linkerd.io/inject-")


@contextlib.contextmanager
def cordoned(kubectl: Kubectl, *nodes: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for node in nodes:
            change = {"spec": {"unschedulable": True}}
            stack.enter_context(patched(kubectl, "node", node, change, {"spec": {"unschedulable": None}}))
        yield


@contextlib.contextmanager
def without(kubectl: Kubectl, kind: str, name: str) -> Iterator[None]:
    """The object is gone for a while."""
    old = kubectl.get(kind, name)
    kubectl("delete", kind, name, "--wait=true")
    try:
        yield
    finally:
        kept = {key: old["metadata"][key] for key in ("name", "labels") if key in old["metadata"]}
        kubectl.apply([{**old, "metadata": kept}])


@contextlib.contextmanager
def kueue(kubectl: Kubectl, setting: str = "manageJobsWithoutQueueName: true") -> Iterator[None]:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
    text = f"apiVersion: config.kueue.x-k8s.io/v1beta1\n{setting}\n"
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": text},
    }
    with applied(kubectl, space, configuration):
        yield


def operator_deployment(*arguments: str, image: str = "mpioperator/mpi-operator:0.8.2") -> dict[str, Any]:
    return deployment(OPERATOR, OPERATOR, image, *arguments, account=OPERATOR)


def autoscaler(kubectl: Kubectl, *arguments: str) -> dict[str, Any]:
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0"
    return deployment(kubectl.namespace, "cluster-autoscaler", image, *arguments)


SEEDS: dict[str, tuple[Seed, str, Level, str]] = {
    "no class of workers": (
        lambda k: without(k.within("default"), "priorityclass", "preemptible-pc"),
        "priority-classes", Level.ERROR, "preemptible-pc does not exist",
    ),
    "launchers below workers": (
        lambda k: applied(k, priority_class("preserved-pc", 70_000_000)),
        "priority-classes", Level.ERROR, "the order is wrong",
    ),
    "inference never preempts": (
        lambda k: applied(k, priority_class("inference-pc", 100_000_000)),
        "priority-classes", Level.ERROR, "never preempts",
    ),
    "workers preempt": (
        lambda k: applied(k, priority_class("preemptible-pc", 80_000_001, preempts=True)),
        "priority-classes", Level.WARNING, "takes GPUs from others",
    ),
    "everybody preempts": (
        lambda k: applied(k, priority_class("seeded", 95_000_000, preempts=True, default=True)),
        "default-class", Level.WARNING, "preempts training for its CPU",
    ),
    "everybody is a worker": (
        lambda k: applied(k, priority_class("preemptible-pc", 80_000_001, default=True)),
        "default-class", Level.WARNING, "may be preempted by inference",
    ),
    "autoscaler's cutoff": (
        lambda k: applied(k, autoscaler(k, "--expendable-pods-priority-cutoff=90000000")),
        "autoscaler-cutoff", Level.WARNING, "its cutoff is 90000000",
    ),
    "operator without a pod": (
        lambda k: applied(k, operator_deployment()),
        "mpi-operator", Level.ERROR, "no available pod",
    ),
    "gang scheduler without its kind": (
        lambda k: applied(k, operator_deployment("--gang-scheduling=volcano")),
        "mpi-operator", Level.ERROR, "no podgroups.scheduling.volcano.sh",
    ),
    "no operator": (
        lambda k: without(k.within("default"), "clusterrolebinding", OPERATOR),
        "mpi-operator", Level.ERROR, "no MPI Operator is installed",
    ),
    "two operators": (
        lambda k: applied(k, operator_binding("seeded", "another")),
        "mpi-operator", Level.WARNING, "several accounts",
    ),
    "Kueue takes every job": (
        kueue, "queues", Level.WARNING, "whose label names no queue",
    ),
    "Kueue waits for all pods": (
        lambda k: kueue(k, "waitForPodsReady: {enable: true, timeout: 7m}"),
        "queues", Level.WARNING, "have not all run at once within 7m",
    ),
    "quota of no pods": (
        lambda k: applied(k, quota(k, {"pods": "0"})), "quotas", Level.ERROR, "pods 0",
    ),
    "quota of no GPUs for workers": (
        lambda k: applied(k, quota(k, {"requests.nvidia.com/gpu": "0"}, ("preemptible-pc",))),
        "quotas", Level.ERROR, "requests.nvidia.com/gpu 0",
    ),
    "quota that asks for limits": (
        lambda k: applied(k, quota(k, {"limits.cpu": "64"})), "quotas", Level.ERROR, "without limits.cpu",
    ),
    "containers of half a CPU": (
        lambda k: applied(k, limits(k, max={"cpu": "500m"})), "limit-ranges", Level.WARNING, "at most 500m cpu",
    ),
    "containers without GPUs": (
        lambda k: applied(k, limits(k, max={"nvidia.com/gpu": "0"})), "limit-ranges", Level.WARNING, "no worker fits",
    ),
    "slow launchers": (
        lambda k: applied(k, limits(k, default={"cpu": "100m"})), "limit-ranges", Level.WARNING, "limits launchers",
    ),
    "no small containers": (
        lambda k: applied(k, limits(k, min={"cpu": "100m"}, default={"cpu": "2"}, defaultRequest={"cpu": "1"})),
        "limit-ranges", Level.WARNING, "refuses the discovery sidecar",
    ),
    "a webhook that is away": (
        lambda k: applied(k, webhook(k, matching=k.namespace)), "admission-webhooks", Level.ERROR, "no ready address",
    ),
    "a namespace of Linkerd's": (
        meshed, "service-mesh", Level.WARNING, "Linkerd puts its proxy into the pods",
    ),
    "foreign taint on GPUs": (
        lambda k: tainted(k.within("default"), "spot"), "gpus", Level.WARNING, "example.com/team of spot",
    ),
    "only spot nodes for launchers": (
        lambda k: tainted(k.within("default"), "on-demand"), "launcher-nodes", Level.WARNING, "is a spot node",
    ),
    "no node takes pods": (
        lambda k: cordoned(k.within("default"), "spot", "on-demand"), "launcher-nodes", Level.ERROR, "no node is Ready",
    ),
    "no GPU node takes pods": (
        lambda k: cordoned(k.within("default"), "spot", "on-demand"), "gpus", Level.ERROR, "no node with GPUs is Ready",
    ),
    "an old kubelet": (
        lambda k: fake_node(k, kubelet="v1.28.3"), "kubelets", Level.ERROR, "no native sidecars on seeded",
    ),
    "GPUs without their plugin": (
        lambda k: fake_node(k, capacity="4"), "gpus", Level.WARNING, "cannot be used",
    ),
    "two default storage classes": (
        lambda k: applied(k, storage_class("seeded-a"), storage_class("seeded-b")),
        "storage", Level.WARNING, "several default classes",
    ),
    "a horovodrun of another Horovod": (
        lambda k: applied(k, suspended_stock_job(k)), "launchers", Level.WARNING, "seeded: Horovod 0.28.1 runs what",
    ),
}  # fmt: skip


@pytest.mark.core
def test_a_sound_cluster_alarms_nobody(here: Kubectl) -> None:
    assert bad(examined(here)) == KNOWN


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_wrong_is_found(here: Kubectl, seed: str) -> None:
    make, check, level, evidence = SEEDS[seed]
    with make(here):
        found = waiting.until(
            f"{check} says {evidence!r}",
            lambda: [
                one
                for one in examined(here)
                if one.check == check and one.verdict.level is level and evidence in one.verdict.evidence
            ],
            within_seconds=20,
            seen=lambda: "\n".join(f"{one.check}: {one.verdict.evidence}" for one in examined(here)),
        )
    assert all(one.verdict.fix for one in found)


def test_a_webhook_for_others_is_not_ours(here: Kubectl) -> None:
    with applied(here, webhook(here, matching="elsewhere")):
        assert bad(examined(here)) == KNOWN


@pytest.mark.core
def test_the_operators_right_is_seen_once_it_is_there(here: Kubectl) -> None:
    program = [sys.executable, "-m", "hvd_elastic.cli", "operator-role"]
    printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    everywhere = here.within("default")

    def told() -> str:
        return {one.check: one.verdict for one in examined(here)}["suspend-and-resume"].evidence

    assert "needs no jobs/status" in told()
    everywhere("apply", "-f", "-", stdin=printed)
    try:
        waiting.until("the right is seen", lambda: "may update jobs/status" in told(), within_seconds=20)
    finally:
        everywhere("delete", "-f", "-", stdin=printed)


def test_who_may_nothing_is_told_what_to_ask_for(here: Kubectl) -> None:
    findings = {one.check: one.verdict for one in examined(here, impersonate="stranger")}
    assert findings["rights"].level is Level.ERROR
    assert "create mpijobs.kubeflow.org" in findings["rights"].evidence
    assert findings["gpus"].level is Level.WARNING
    assert "stranger" in findings["gpus"].evidence
    # The role that is printed is a role that the API server takes, and it is enough.
    role = findings["rights"].fix.replace("YOU", "stranger")
    for line in role.split("; "):
        here(*line.removeprefix(f"kubectl -n {here.namespace} ").split())
    try:
        assert (
            next(one for one in examined(here, impersonate="stranger") if one.check == "rights").verdict.level
            is Level.OK
        )
    finally:
        here("delete", "role,rolebinding", "hvd-elastic-user")


def test_a_namespace_that_is_not_there_or_goes(here: Kubectl) -> None:
    assert ("namespace", Level.ERROR) in bad(examined(here, namespace="nowhere"))
    everywhere = here.within("default")
    everywhere("create", "namespace", "doctor-going")
    going = here.within("doctor-going")
    going("create", "configmap", "kept")
    going.patch("configmap", "kept", {"metadata": {"finalizers": ["example.com/kept"]}})
    everywhere("delete", "namespace", "doctor-going", "--wait=false")
    try:
        assert ("namespace", Level.ERROR) in bad(examined(here, namespace="doctor-going"))
    finally:
        going.patch("configmap", "kept", {"metadata": {"finalizers": None}})


def test_the_verb_says_all_and_ends_with_the_number_of_errors(here: Kubectl, cluster: Site) -> None:
    program = [sys.executable, "-m", "hvd_elastic.cli", "doctor", "-n", here.namespace, "-o", "json"]
    environment = {"KUBECONFIG": str(here.kubeconfig), "PATH": "/usr/bin"}
    with contextlib.suppress(ClusterError), applied(here, quota(here, {"pods": "0"})):
        done = subprocess.run(program, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == 1
        rows = {row["check"]: row for row in json.loads(done.stdout) if row["level"] != "ok"}
        assert rows["quotas"]["fix"]
