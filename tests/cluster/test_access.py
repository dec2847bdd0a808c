"""What a job may do in the cluster, asked of the API server itself; and that it admits everything that we generate."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cluster import jobs
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from testbed.kube.waiting import until
from tests.mpijob import modules

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

_GOLDENS = sorted((Path(__file__).parents[1] / "mpijob").rglob("golden*/**/*.yaml"))
_ACCOUNT = "system:serviceaccount:{namespace}:probe-discovery"


@pytest.fixture(scope="module")
def applied(cluster: Site) -> Iterator[Kubectl]:
    """A job's access objects, without the job: one namespace for all questions, which change nothing."""
    kubectl = make_namespace(cluster, "access")
    description = jobs.describe(cluster, kubectl, "probe", ["true"])
    kubectl.apply([item for item in yaml.safe_load_all(jobs.generate(description)) if item["kind"] != "MPIJob"])
    yield kubectl
    remove_namespace(cluster, "access")


@pytest.mark.core
@pytest.mark.parametrize(
    ("verb", "resource", "elsewhere", "allowed"),
    [
        ("list", "pods", False, True),
        ("watch", "pods", False, True),
        ("delete", "pods/probe-worker-0", False, True),
        ("delete", "pods/probe-worker-2", False, True),
        ("delete", "pods/probe-worker-3", False, False),
        ("delete", "pods/another-worker-0", False, False),
        ("delete", "pods", False, False),
        ("get", "mpijobs/probe", False, True),
        ("patch", "mpijobs/probe", False, True),
        ("get", "mpijobs/another", False, False),
        ("delete", "mpijobs/probe", False, False),
        ("get", "secrets", False, False),
        ("list", "secrets", False, False),
        ("create", "pods", False, False),
        ("create", "pods/exec", False, False),
        ("list", "configmaps", False, False),
        ("create", "rolebindings", False, False),
        ("patch", "rolebindings/probe-discovery", False, False),
        ("patch", "roles/probe-discovery", False, False),
        ("patch", "serviceaccounts/probe-discovery", False, True),
        ("patch", "serviceaccounts/another", False, False),
        ("list", "pods", True, False),
        ("delete", "pods/probe-worker-0", True, False),
        ("list", "nodes", False, False),
    ],
)
def test_discovery_may_do_what_it_needs_and_no_more(
    applied: Kubectl, verb: str, resource: str, elsewhere: bool, allowed: bool
) -> None:
    scope = applied.within("kube-system") if elsewhere else applied
    account = _ACCOUNT.format(namespace=applied.namespace)
    assert _may(scope, account, verb, resource) is allowed


@pytest.mark.core
def test_discovery_may_make_its_ledger_again_by_apply_and_nothing_else(applied: Kubectl) -> None:
    """The API server asks RBAC about an apply with the name in its path, and about a POST without one."""
    account = _ACCOUNT.format(namespace=applied.namespace)

    def apply(name: str, *options: str) -> None:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": applied.namespace}}
        applied("apply", "--server-side", "--force-conflicts", *options, "-f", "-", stdin=json.dumps(made))

    applied("delete", "configmap", "probe-ledger")
    with pytest.raises(ClusterError, match="forbidden"):
        applied("create", "configmap", "probe-ledger", f"--as={account}")
    with pytest.raises(ClusterError, match="forbidden"):
        apply("another", f"--as={account}")
    assert applied.find("configmap", "another") is None
    assert applied.find("configmap", "probe-ledger") is None
    apply("probe-ledger", f"--as={account}")
    assert applied.find("configmap", "probe-ledger") is not None


Kinds = dict[tuple[str, str], bool]
"""API version and kind to whether it lives in a namespace."""


@pytest.fixture(scope="module")
def kinds(cluster: Site) -> Iterator[Kinds]:
    """What the API server knows, once it has the schemas of kinds whose operators do not run here as well."""
    for crd in (modules.PYTORCHJOB, modules.POD_MONITOR):
        # On the server: the object is too large for the annotation of a client's apply.
        cluster.kubectl("apply", "--server-side", "-f", str(crd.local()))
    served_before = _serve_legacy_mpijob(cluster)
    kinds = {(item["apiVersion"], item["kind"]) for golden in _GOLDENS for item in _items(golden)}
    versions = {version for version, _ in kinds}

    def served() -> Kinds | None:
        found = {kind: scope for version in versions for kind, scope in _kinds(cluster, version)}
        return found if kinds <= found.keys() else None

    yield until("the kinds of all goldens are served", served, within_seconds=30)
    _serve_mpijob(cluster, served_before)
    # Asks anew, which kubectl does by itself only after six hours: `mpijob` would mean v1 to the tests that follow.
    until(
        "v1 is forgotten",
        lambda: "kubeflow.org/v1 true MPIJob" not in _said(cluster, "api-resources"),
        within_seconds=30,
    )


def _serve_legacy_mpijob(cluster: Site) -> list[dict[str, Any]]:
    """Both operators own one CRD name; a cluster has one of them. For its schema alone v1 can stand beside v2beta1.

    Returns the versions that were served before: whoever asks for `mpijob` gets v1 as long as it stands there.
    """
    legacy = yaml.safe_load(modules.LEGACY_MPIJOB.local().read_text())["spec"]["versions"]
    before = [each for each in _mpijob_crd(cluster)["spec"]["versions"] if each["name"] == "v2beta1"]
    _serve_mpijob(cluster, [*before, *(version | {"storage": False} for version in legacy)])
    return before


def _serve_mpijob(cluster: Site, versions: list[dict[str, Any]]) -> None:
    crd = _mpijob_crd(cluster)
    crd["spec"]["versions"] = versions
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(crd))


def _mpijob_crd(cluster: Site) -> dict[str, Any]:
    return cluster.kubectl.get("crd", "mpijobs.kubeflow.org")


def _kinds(cluster: Site, version: str) -> Iterator[tuple[tuple[str, str], bool]]:
    """Asked of each version by itself: `kubectl api-resources` names the preferred version of a kind and no other."""
    path = f"/apis/{version}" if "/" in version else f"/api/{version}"
    try:
        listed = json.loads(cluster.kubectl("get", "--raw", path))
    except ClusterError:  # a version that is not served yet
        return
    for resource in listed["resources"]:
        yield (version, resource["kind"]), resource["namespaced"]


def _said(cluster: Site, *arguments: str) -> str:
    return " ".join(cluster.kubectl(*arguments).split())


def _items(golden: Path) -> Iterator[dict[str, Any]]:
    return filter(None, yaml.safe_load_all(golden.read_text()))


@pytest.mark.core
@pytest.mark.parametrize("golden", _GOLDENS, ids=lambda path: path.stem)
def test_the_api_server_admits_every_golden(cluster: Site, applied: Kubectl, kinds: Kinds, golden: Path) -> None:
    """A dry run on the server: schema, defaults, admission."""
    for item in _items(golden):
        if kinds[item["apiVersion"], item["kind"]]:
            item["metadata"]["namespace"] = applied.namespace
        assert "dry run" in cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(item))


def _may(kubectl: Kubectl, account: str, verb: str, resource: str) -> bool:
    argv = kubectl.argv("auth", "can-i", verb, resource, f"--as={account}")
    said = subprocess.run(argv, text=True, capture_output=True, check=False, timeout=30).stdout.strip()
    assert said in {"yes", "no"}
    return said == "yes"
