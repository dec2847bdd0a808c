"""Discovery against the real API server, with the rights of the generated Role and no more; pods without a kubelet."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from hvd_elastic.discovery.kube.api_server import Access, ApiServer
from hvd_elastic.discovery.sidecar.sidecar import Sidecar
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.snapshot import SnapshotError, read_snapshot
from hvd_elastic.mpijob.contract import ANNOTATION_WANTED_WORKERS, LABEL_JOB_NAME, LABEL_JOB_ROLE, SnapshotState
from testbed.cluster.site import Site
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.faultproxy import Cut, FaultProxy, Refusal, hold
from tests.discovery.workers import Workers

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

IMAGE = "registry.invalid/none:1"
RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Job:
    """An MPIJob that its operator leaves alone, and pods that no scheduler takes: their status is ours to write."""

    def __init__(self, site: Site, kubectl: Kubectl, name: str = "elastic", workers: int = 3) -> None:
        self.kubectl, self.name, self.workers = kubectl, name, workers
        self.admin = ApiServer(certified(kubectl))
        self.path = f"/api/v1/namespaces/{kubectl.namespace}/pods"
        template = {"spec": {"containers": [{"name": "c", "image": IMAGE}]}}
        job = {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": name, "namespace": kubectl.namespace},
            "spec": {
                "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "template": template},
                    "Worker": {"replicas": workers, "template": template},
                },
            },
        }
        made = self.admin.create(f"/apis/kubeflow.org/v2beta1/namespaces/{kubectl.namespace}/mpijobs", job)
        self.uid = made["metadata"]["uid"]

    def add(self, *indexes: int, node: str = "") -> None:
        for index in indexes:
            self.admin.create(self.path, self._pod(index, node))
            self.status(index)

    def status(self, index: int, *, ready: bool = True, phase: str = "Running", disrupted: str = "") -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        address = f"127.{20 + index // 60000}.{index // 250 % 240}.{index % 250 + 1}"
        conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": now}]
        if disrupted:
            # Without its time the disruption controller takes it for an old one and sets it to False.
            conditions.append({**conditions[0], "type": "DisruptionTarget", "status": "True", "reason": disrupted})
        self.admin.patch(
            f"{self.path}/{self._name(index)}/status",
            {
                "status": {
                    "phase": phase,
                    "conditions": conditions,
                    "podIP": address,
                    "podIPs": [{"ip": address}],
                    "reason": "Evicted" if phase == "Failed" else None,
                }
            },
        )

    def remove(self, index: int) -> None:
        self.admin.delete(f"{self.path}/{self._name(index)}", {"gracePeriodSeconds": 0})

    def _name(self, index: int) -> str:
        return f"{self.name}-worker-{index}"

    def _pod(self, index: int, node: str) -> dict[str, Any]:
        owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": self.name, "uid": self.uid}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._name(index),
                "labels": {LABEL_JOB_NAME: self.name, LABEL_JOB_ROLE: "worker"},
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {
                "schedulerName": "nobody",
                **({"nodeName": node} if node else {}),
                "automountServiceAccountToken": False,
                "containers": [{"name": "worker", "image": IMAGE, "securityContext": RESTRICTED}],
            },
        }


class Seen:
    """A sidecar in a thread of this process, and its list."""

    def __init__(self, folder: Path, access: Access, options: SidecarOptions) -> None:
        self.folder = folder
        self.sidecar = Sidecar(options, access, Metrics())
        self._thread = threading.Thread(target=self.sidecar.run, daemon=True)
        self._thread.start()

    def indexes(self) -> set[int]:
        try:
            return {int(host.pod.rpartition("-")[2]) for host in read_snapshot(self.folder).hosts}
        except SnapshotError:
            return {-1}

    def shows(self, *indexes: int, within_seconds: float = 60) -> float:
        started = time.monotonic()
        waiting.until(
            f"hosts {len(indexes)}",
            lambda: self.indexes() == set(indexes),
            within_seconds=within_seconds,
            every_seconds=0.01,
            seen=lambda: str(sorted(self.indexes())),
        )
        return time.monotonic() - started

    def stop(self) -> None:
        self.sidecar.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()


def certified(kubectl: Kubectl) -> Access:
    """The login of the cluster's kubeconfig."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    address = urlsplit(cluster["server"])

    def tls() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        return context

    return Access(host=str(address.hostname), port=address.port or 443, tls=tls)


def service_account(kubectl: Kubectl, job: str, *, read_nodes: bool = False) -> Access:
    """The login of the ServiceAccount that `hvd-elastic generate` makes for a job's sidecar."""
    from hvd_elastic.mpijob.description import job_spec
    from hvd_elastic.mpijob.manifests.supporting import rbac

    described = job_spec.JobSpec.model_validate(
        {
            "name": job,
            "namespace": kubectl.namespace,
            "image": "registry.example.com/a:1",
            "command": ["python", "train.py"],
            "workers": {"min": 1, "max": 3},
            "read_nodes": read_nodes,
        }
    )
    kubectl.apply([dict(manifest) for manifest in rbac.manifests(described)])
    return with_token(kubectl, kubectl("create", "token", rbac.name(described)).strip())


def with_token(kubectl: Kubectl, token: str) -> Access:
    """The login of whoever has this token, and nothing else."""
    admin = certified(kubectl)
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    authority = config["clusters"][0]["cluster"]["certificate-authority"]
    return replace(admin, tls=lambda: ssl.create_default_context(cafile=authority), token=lambda: token)


@pytest.fixture(scope="module")
def ports() -> Iterator[Workers]:
    served = Workers()
    yield served
    served.stop()


@contextmanager
def discovering(job: Job, access: Access, ports: Workers, folder: Path, **options: object) -> Iterator[Seen]:
    given = {"job": job.name, "namespace": job.kubectl.namespace, "run_dir": folder, "ready_port": ports.port,
             "max_workers": job.workers, **options}  # fmt: skip
    seen = Seen(folder, access, SidecarOptions(**given))  # type: ignore[arg-type]
    try:
        yield seen
    finally:
        seen.stop()


@pytest.mark.core
def test_with_the_rights_of_its_role(cluster: Site, namespace: Kubectl, ports: Workers, tmp_path: Path) -> None:
    job = Job(cluster, namespace)
    with discovering(job, service_account(namespace, job.name), ports, tmp_path, min_workers=2) as seen:
        seen.shows()
        job.add(0, 1, 2)
        seen.shows(0, 1, 2)
        job.status(1, disrupted="PreemptionByScheduler")
        seen.shows(0, 2)
        job.remove(1)
        job.status(2, ready=False)
        seen.shows(0)
        assert read_snapshot(tmp_path).state is SnapshotState.SHORT
        job.status(2, phase="Failed", ready=False)
        waiting.until(
            "the failed worker is reaped", lambda: namespace.find("pod", "elastic-worker-2") is None, within_seconds=60
        )
        events = [event["reason"] for event in namespace.list("events")]
        assert "WorkerFailed" in events, events


@pytest.mark.core
def test_victims_leave_before_the_replicas_are_lowered(
    cluster: Site, namespace: Kubectl, ports: Workers, tmp_path: Path
) -> None:
    job = Job(cluster, namespace)
    with discovering(job, service_account(namespace, job.name), ports, tmp_path) as seen:
        job.add(0, 1, 2)
        seen.shows(0, 1, 2)
        namespace("annotate", "mpijob", job.name, f"{ANNOTATION_WANTED_WORKERS}=1")
        seen.shows(0)
        waiting.until(
            "the replicas are lowered",
            lambda: namespace.get("mpijob", job.name)["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 1,
            within_seconds=30,
        )


NOTICES = (
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "karpenter.sh/disrupted",
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
    "aks-node-termination-handler/preempt",
)
"""Taints that programs of the clouds put on a node before they empty it (`discovery/rules/node_signals.py`)."""


@pytest.fixture
def node(cluster: Site, namespace: Kubectl) -> Iterator[str]:
    """A node of no machine."""
    name = f"{namespace.namespace}-node"
    cluster.kubectl.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}])
    yield name
    cluster.kubectl("delete", "node", name, "--ignore-not-found")
    for kind in ("clusterrole", "clusterrolebinding"):
        cluster.kubectl("delete", kind, f"{namespace.namespace}.elastic.node-reader", "--ignore-not-found")


@pytest.mark.core
def test_each_notice_of_a_cloud(cluster: Site, namespace: Kubectl, ports: Workers, node: str, tmp_path: Path) -> None:
    """With the rights of `read_nodes`: the worker is out at once, and its pod is left alone."""
    job = Job(cluster, namespace)
    with discovering(job, service_account(namespace, job.name, read_nodes=True), ports, tmp_path) as seen:
        job.add(0)
        job.add(1, node=node)
        seen.shows(0, 1)
        for taint in NOTICES:
            cluster.kubectl("taint", "node", node, f"{taint}=notice:NoSchedule")
            seen.shows(0)
            cluster.kubectl("taint", "node", node, f"{taint}-")
            seen.shows(0, 1)
        condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
        for message in ("node is shutting down", "PLEG is not healthy"):
            value = {"status": {"conditions": [{**condition, "message": message}]}}
            cluster.kubectl.patch("node", node, value, subresource="status", how="strategic")
            seen.shows(*([0] if "shutting" in message else [0, 1]))
        cluster.kubectl("delete", "node", node)
        seen.shows(0)
        assert "deletionTimestamp" not in namespace.get("pod", "elastic-worker-1")["metadata"]


def refuse(status: int) -> Any:
    def before(path: str) -> None:
        raise Refusal(status, {"Retry-After": "1"} if status == 429 else {})

    return before


def cut(_: object) -> bytes:
    raise Cut


FAULTS: dict[str, tuple[Any, Any]] = {
    "403": (refuse(403), cut),
    "429": (refuse(429), cut),
    "500": (refuse(500), cut),
    "gone": (cut, cut),
    "cut in a line": (None, lambda piece: cut(piece) if len(piece) > 500 else piece),
    "garbled": (None, lambda piece: piece.replace(b'"type":', b'"tyqe":')),
}


def test_right_again_after_each_fault(cluster: Site, namespace: Kubectl, ports: Workers, tmp_path: Path) -> None:
    job = Job(cluster, namespace)
    proxy = FaultProxy(service_account(namespace, job.name))
    took = {}
    try:
        with discovering(job, proxy.access(), ports, tmp_path, nodes=False) as seen:
            job.add(0, 1)
            seen.shows(0, 1)
            for name, (before, between) in FAULTS.items():
                proxy.before, proxy.between = before or proxy.before, between or proxy.between
                job.status(1, ready=False)
                time.sleep(2)  # the fault lasts for so long
                proxy.heal()
                took[name] = seen.shows(0)
                job.status(1)
                seen.shows(0, 1)
            proxy.between = hold(3)
            job.status(1, ready=False)
            time.sleep(3)
            took["hangs"] = seen.shows(0)
    finally:
        proxy.stop()
    print(json.dumps({name: round(seconds, 2) for name, seconds in took.items()}))
    assert max(took.values()) < 10, took


def test_a_thousand_pods(cluster: Site, namespace: Kubectl, ports: Workers, tmp_path: Path) -> None:
    job = Job(cluster, namespace, workers=1000)
    job.add(*range(1000))
    with discovering(job, service_account(namespace, job.name), ports, tmp_path) as seen:
        full = seen.shows(*range(1000), within_seconds=120)
        took = []
        for index in range(0, 1000, 20):
            job.status(index, ready=False)
            started = time.monotonic()
            waiting.until("it is out", lambda i=index: i not in seen.indexes(), within_seconds=30, every_seconds=0.002)  # type: ignore[misc]
            took.append(time.monotonic() - started)
    took.sort()
    middle, most = took[25] * 1e3, took[-1] * 1e3
    print(
        f"first list {full:.2f} s; from the PATCH's answer to the snapshot: median {middle:.1f} ms, most {most:.1f} ms"
    )
    assert len(took) == 50
    # Its queue takes ten events a second from all jobs together; a thousand pods are minutes, which the next job waits.
    if cluster.machine:
        cluster.machine.restart_mpi_operator()
