"""A fake API server that has what a job needs, and people who talk to it."""

import json
from pathlib import Path
from typing import Any

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job
from testbed.kube_api import EVENTS, JOBS, PODS, Json, KubeApi, Request, Status

HERE = "/api/v1/namespaces/default"
ACCOUNTS = f"{HERE}/serviceaccounts"
CLAIMS = f"{HERE}/persistentvolumeclaims"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
VOLUMES = "/api/v1/persistentvolumes"
MAPS = f"{HERE}/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
NAMESPACES = "/api/v1/namespaces"

DESCRIPTION = """
name: bert
image: train:1
workers: 1:4
command: [python, train.py]
"""


def named(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name}, **more}


class JobsCluster(KubeApi):
    """Serves a cluster in which jobs can be submitted."""

    def __init__(self) -> None:
        super().__init__()
        namespaced = (ACCOUNTS, CLAIMS, ROLES, BINDINGS, POLICIES, MAPS, PODS, EVENTS, DEPLOYMENTS)
        for path in (*namespaced, CLUSTER_ROLES, CLASSES, DRIVERS, VOLUMES, NAMESPACES):
            self.objects.setdefault(path, {})
        for parent in ("", "/apis", "/apis/kubeflow.org"):
            self.objects[parent] = {}
        self.put("", named("version", gitVersion="v1.34.4"))
        self.put(NAMESPACES, named("default"))
        for name in ("preserved-pc", "preemptible-pc"):
            self.put(CLASSES, named(name))
        self.put("/apis", named("kubeflow.org", versions=[{"groupVersion": "kubeflow.org/v2beta1"}]))
        self.put("/apis/kubeflow.org", named("v2beta1", resources=[{"name": "mpijobs"}]))

    def listing(self, path: str, query: dict[str, str]) -> Json:
        """An API group is an object whose path others begin with."""
        group, _, name = path.rpartition("/")
        if group != "/apis":
            return super().listing(path, query)
        if name not in self.objects[group]:
            raise Status(404)
        return self.objects[group][name]

    def client(self) -> ClusterClient:
        return ClusterClient(Session(Login(server=f"http://127.0.0.1:{self.port}", namespace="default")))

    def kubeconfig(self, path: Path) -> Path:
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        }
        path.write_text(json.dumps(config))
        return path

    def job(self, name: str = "bert") -> Json:
        return self.objects[JOBS][name]

    def change_job(self, name: str = "bert", **changes: Any) -> None:
        """Merge into the MPIJob, as the operator or the sidecar would."""
        self.patch(JOBS, name, changes)

    def annotate(self, **annotations: str) -> None:
        keys = {f"hvd-elastic.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.change_job(metadata={"annotations": keys})

    def written(self) -> list[str]:
        """Methods and paths of what really changed something."""
        return [
            f"{request.method} {request.path}"
            for request in self.requests
            if request.method != "GET" and "dryRun" not in {**request.query, **(request.body or {})}
        ]


def spec(**overrides: object) -> JobSpec:
    return read_job(DESCRIPTION, {key.replace("__", "."): value for key, value in overrides.items()})


def refuse(kind: str, code: int, **cause: str) -> Any:
    """A fault that refuses to write one kind for this cause."""

    def fault(request: Request) -> None:
        if request.method == "PATCH" and (request.body or {}).get("kind") == kind:
            raise Status(code, details={"causes": [cause]})

    return fault
