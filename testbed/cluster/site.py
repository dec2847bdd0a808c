"""The cluster as a test sees it: one of this machine, or one that exists already."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.kube import cluster as kube
from testbed.kube import folders, gomodules, images, waiting
from testbed.kube.cluster import Cluster
from testbed.kube.errors import MissingError
from testbed.kube.kubectl import Kubectl

KUBECONFIG_VARIABLE: Final = "HVD_ELASTIC_E2E_KUBECONFIG"
RESULTS: Final = "results"
"""The claim of a test's job, which its pods see as /output."""
IMAGE_VARIABLE: Final = "HVD_ELASTIC_E2E_IMAGE"
"""The product's image as that cluster can pull it."""

RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}

_OF: Final = "test.hvd-elastic.dev/namespace"
"""Label of what a test's namespace cannot hold and goes with it all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the tests run."""

    kubectl: Kubectl
    image: str
    machine: Cluster | None
    """Its processes and nodes; None where they are not ours to stop."""

    def local(self) -> Cluster:
        """Return the cluster of this machine; skips the test where it runs on another."""
        if self.machine is None:
            pytest.skip(f"{KUBECONFIG_VARIABLE} is set, and this test stops parts of the cluster")
        return self.machine


def existing() -> Site | None:
    """Return the cluster that the environment names."""
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    if not kubeconfig:
        return None
    program, image = shutil.which("kubectl"), os.environ.get(IMAGE_VARIABLE)
    if program is None or not image:
        pytest.exit(f"{KUBECONFIG_VARIABLE} needs kubectl on PATH and {IMAGE_VARIABLE}", returncode=4)
    return Site(kubectl=Kubectl(program=Path(program), kubeconfig=Path(kubeconfig)), image=image, machine=None)


def attach(running: Cluster) -> Site:
    """Return a running cluster of this machine, with the image of the checkout as it is on each of its nodes.

    An image that the environment names is taken as it is: one that was built before, of another state of the code.
    """
    name = os.environ.get(IMAGE_VARIABLE) or f"{images.REPOSITORY}:{images.build()}"
    running.load_image(images.layout(), name.rpartition(":")[2], name)
    return Site(kubectl=running.kubectl, image=name, machine=running)


def make_namespace(site: Site, name: str) -> Kubectl:
    """Make a namespace that admits only pods of the `restricted` standard. One that another test left goes first."""
    if site.kubectl.find("namespace", name):
        remove_namespace(site, name)
        waiting.until(
            f"namespace {name} is gone", lambda: site.kubectl.find("namespace", name) is None, within_seconds=90
        )
    _remove_shares(site, name)
    metadata = {"name": name, "labels": RESTRICTED}
    site.kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
    made = site.kubectl.within(name)
    # The API server refuses pods until a controller has made it, which takes a moment after the controllers' start.
    waiting.until("the default account is there", lambda: made.find("serviceaccount", "default"), within_seconds=30)
    return made


def remove_namespace(site: Site, name: str) -> None:
    """Begin to remove a namespace and wait until it has no pods, which are not given their grace.

    The namespace itself ends later: its controller looks 16 s later again for pods that it asked to leave.
    """
    kubectl = site.kubectl.within(name)
    # Gone before the rest: an operator that cannot make its pods anew backs off for minutes, even from the next job of
    # the name.
    kubectl("delete", "mpijobs", "--all")
    site.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")  # nothing is made in it any more
    kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force")
    waiting.until(f"namespace {name} has no pods", lambda: not kubectl.list("pods"), within_seconds=90)
    _remove_shares(site, name)


def _remove_shares(site: Site, name: str) -> None:
    site.kubectl("delete", "persistentvolumes", f"--selector={_OF}={name}")
    shutil.rmtree(_shares(name), ignore_errors=True)


def share(site: Site, namespace: Kubectl, claim: str) -> Path:
    """Make a folder of this machine that every pod may mount by the claim, and read and write as uid 1000.

    Both nodes are this machine, so that it is what a shared file system is to a cluster.
    """
    site.local()
    folder = _shares(namespace.namespace) / claim
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chown(folder, 1000, 1000)
    volume = f"{namespace.namespace}-{claim}"
    size: dict[str, Any] = {"storage": "1Gi"}
    modes = ["ReadWriteMany"]
    site.kubectl.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume, "labels": {_OF: namespace.namespace}},
                "spec": {
                    "capacity": size,
                    "accessModes": modes,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "",
                    "hostPath": {"path": str(folder)},
                    "claimRef": {"namespace": namespace.namespace, "name": claim},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": namespace.namespace},
                "spec": {
                    "accessModes": modes,
                    "storageClassName": "",
                    "volumeName": volume,
                    "resources": {"requests": size},
                },
            },
        ]
    )
    waiting.until(
        f"claim {claim} is bound",
        lambda: namespace.get("persistentvolumeclaim", claim)["status"].get("phase") == "Bound",
        within_seconds=30,
    )
    return folder


def told(namespace: Kubectl) -> Path:
    """Return where the training of a namespace's job tells its steps; the folder may not be there."""
    return _shares(namespace.namespace) / RESULTS / "events"


def _shares(namespace: str) -> Path:
    return folders.state() / "shared" / namespace


def running_or_up() -> tuple[Cluster, bool]:
    """Return the cluster of this machine, and whether it was brought up for the caller (who then takes it down).

    Raises:
        MissingError: one of another version than the one asked for runs.

    """
    if (found := kube.attach()) and not found.ended():
        for name, runs in (("kubernetes", found.plane.kubernetes), ("mpi-operator", found.plane.mpi_operator)):
            if (asked := gomodules.chosen(name, default=runs)) != runs:
                raise MissingError(f"{name} {asked} is asked for, and a cluster with {runs} runs: `make cluster-down`")
        return found, False
    return kube.up(), True


def owned_by_nobody(kubectl: Kubectl) -> list[str]:
    """Return all objects that are still in a namespace, beside what Kubernetes itself puts into each."""
    kinds = "pods,jobs,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,mpijobs"
    items = json.loads(kubectl("get", kinds, "-o", "json"))["items"]
    names = [f"{item['kind']}/{item['metadata']['name']}" for item in items]
    return [name for name in names if name not in {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}]
