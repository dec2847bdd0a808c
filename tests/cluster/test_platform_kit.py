"""The platform team's kit, applied to the real API server: every object is taken, and the guard keeps strangers out."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.decide.autoscale.controller_manifests import NAME as AUTOSCALER
from hvd_elastic.discovery.kube.node_exclusion import excluding
from hvd_elastic.mpijob.contract import (
    ANNOTATION_EXCLUDED_NODES,
    ANNOTATION_SPEC,
    ANNOTATION_STATUS,
    ANNOTATION_WANTED_WORKERS,
)
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting import rbac
from hvd_elastic.setup.platform_kit import slow_nodes
from hvd_elastic.setup.platform_kit.mpijob_guard import WRITERS
from testbed.cluster.pods import pod
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube import store, waiting
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl, as_list
from tests.mpijob import modules
from tests.mpijob.jobs import job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

CLASS = "kit-inference-pc"
CLASSES = ("--inference", CLASS, "--preserved", "kit-preserved-pc", "--preemptible", "kit-preemptible-pc")
"""Names of their own: the kit goes again, and other tests need the usual classes."""
SERVING, ELSEWHERE = "kit-serving", "kit-elsewhere"
GPUS = 2
JOB = job(name="guarded", namespace=ELSEWHERE, suspend=True)
REPLICAS = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}}
TEMPLATE = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"serviceAccountName": "admin"}}}}}}
DESCRIPTION = {"metadata": {"annotations": {ANNOTATION_SPEC: "{}"}}}
RULES = "prometheusrules.monitoring.coreos.com"
RBAC = "rbac.authorization.k8s.io"
READER: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["get"]}],
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccounts"}],
    },
)
"""All service accounts may get MPIJobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """A kit that was applied: the guard lets the namespace `serving` in."""

    folder: Path
    serving: Kubectl
    elsewhere: Kubectl


def written(folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "hvd_elastic.cli", "platform-kit", str(folder), *options]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def kit(cluster: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    cluster.local()  # another cluster may have a kit already, which would go with ours
    folder = tmp_path_factory.mktemp("kit")
    serving, elsewhere = make_namespace(cluster, SERVING), make_namespace(cluster, ELSEWHERE)
    # On the server: the object is too large for the annotation of a client's apply.
    cluster.kubectl("apply", "--server-side", "-f", str(modules.PROMETHEUS_RULE.local()))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{RULES}", "--timeout=30s")
    guard = ("--allow", SERVING, "--quota", f"{SERVING}={GPUS}")
    monitoring = ("--with", "alerts", "--with", "dashboard", "--monitoring-namespace", SERVING)
    jobs = ("--with", "mpijob-guard", "--with", "people-roles", "--with", "slow-nodes")
    written(folder, *CLASSES, *guard, *jobs, *monitoring, "--image", cluster.image, "--namespace", SERVING)
    try:
        cluster.kubectl("apply", "--server-side", "-k", str(folder))
        yield Kit(folder=folder, serving=serving, elsewhere=elsewhere)
    finally:
        cluster.kubectl("delete", "-k", str(folder), "--ignore-not-found", "--wait=false")
        for name in (SERVING, ELSEWHERE):
            remove_namespace(cluster, name)


@pytest.mark.core
def test_the_api_server_has_every_object_of_the_kit(cluster: Site, kit: Kit) -> None:
    """`kubectl get` fails if one is missing."""
    built = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(kit.folder))))
    names = cluster.kubectl("get", "-k", str(kit.folder), "-o", "name").split()
    assert len(names) == len(built)
    assert f"prometheusrule.{RULES.partition('.')[2]}/hvd-elastic" in names
    assert "configmap/hvd-elastic-dashboard" in names


@pytest.mark.core
def test_the_kit_applied_again_changes_nothing(cluster: Site, kit: Kit) -> None:
    """By the generation, which the API server raises with each change of a spec."""

    def generations() -> dict[str, Any]:
        listed = yaml.safe_load(cluster.kubectl("get", "-k", str(kit.folder), "-o", "yaml"))["items"]
        return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"].get("generation") for one in listed}

    before = generations()
    cluster.kubectl("apply", "--server-side", "-k", str(kit.folder))
    assert generations() == before


@pytest.mark.core
def test_the_guard_admits_the_namespace_that_it_names_and_no_other(cluster: Site, kit: Kit) -> None:
    waiting.until(
        "the policy is in force",
        lambda: f"{ELSEWHERE}/default may not use the PriorityClass {CLASS}" in refusal(cluster, kit.elsewhere),
        within_seconds=60,
        seen=lambda: refusal(cluster, kit.elsewhere),
    )
    assert refusal(cluster, kit.elsewhere, priority="kit-preemptible-pc") == ""
    # Until the quota's controller has counted, every pod of the class is refused.
    waiting.until(
        "the quota is counted",
        lambda: refusal(cluster, kit.serving) == "",
        within_seconds=60,
        seen=lambda: refusal(cluster, kit.serving),
    )


@pytest.mark.core
def test_the_quota_of_the_guard_ends_what_an_allowed_namespace_may_take(cluster: Site, kit: Kit) -> None:
    waiting.until(
        "one pod more than the quota is refused",
        lambda: "exceeded quota" in refusal(cluster, kit.serving, gpus=GPUS + 1),
        within_seconds=60,
        seen=lambda: refusal(cluster, kit.serving, gpus=GPUS + 1),
    )


@pytest.fixture
def guarded(kit: Kit) -> Kubectl:
    """A job that is suspended, so that the operator makes no pod of it. All may get it: kubectl does before a patch."""
    made = [one for one in render(JOB) if one["kind"] in {"MPIJob", "ServiceAccount", "Role", "RoleBinding"}]
    kit.elsewhere.apply([*made, *READER])
    return kit.elsewhere


@pytest.mark.core
def test_the_accounts_of_a_job_change_of_it_what_they_must_and_nothing_else(guarded: Kubectl) -> None:
    """Each request is made as the account, with its own right to patch."""
    sidecar, autoscaler = f"{ELSEWHERE}:{rbac.name(JOB)}", f"{SERVING}:{AUTOSCALER}"
    excluder = f"{SERVING}:{slow_nodes.NAME}"
    for account in (sidecar, autoscaler, excluder):
        wait_for_policy(guarded, account)
        assert "may change nothing" in change_refused(guarded, account, DESCRIPTION)
    assert change_refused(guarded, sidecar, REPLICAS) == ""
    assert change_refused(guarded, sidecar, {"metadata": {"annotations": {ANNOTATION_STATUS: "{}"}}}) == ""
    assert "may change nothing" in change_refused(guarded, autoscaler, REPLICAS)
    assert change_refused(guarded, autoscaler, {"metadata": {"annotations": {ANNOTATION_WANTED_WORKERS: "2"}}}) == ""
    excluded = {"metadata": {"annotations": {ANNOTATION_EXCLUDED_NODES: "node-7=2026-12-01T12:00:00+00:00"}}}
    placed = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"affinity": excluding({}, ["node-7"])}}}}}}
    assert change_refused(guarded, excluder, {**excluded, **placed}) == ""
    assert "may change nothing" in change_refused(guarded, excluder, excluded), "and not do what it says"
    assert "may change nothing" in change_refused(guarded, excluder, placed)
    assert "may change nothing" in change_refused(guarded, sidecar, {**excluded, **placed})
    guarded.patch("mpijob", JOB.name, TEMPLATE)  # a person


@pytest.mark.core
@pytest.mark.usefixtures("guarded")
def test_the_api_server_finds_no_fault_with_the_expressions(cluster: Site) -> None:
    names = [*(f"mpijob-{writer.name}.hvd-elastic.dev" for writer in WRITERS), "slow-nodes.hvd-elastic.dev"]

    def checks() -> list[dict[str, Any]]:
        """What was found in each policy, once the controller has looked at it."""
        found = [cluster.kubectl.get("validatingadmissionpolicy", name).get("status", {}) for name in names]
        return [status["typeChecking"] for status in found if "typeChecking" in status]

    waiting.until(
        "the policies are checked", lambda: len(checks()) == len(names), within_seconds=60, seen=lambda: str(checks())
    )
    assert checks() == [{}] * len(names)


@pytest.mark.core
def test_who_may_view_sees_jobs_and_who_may_edit_submits_them(kit: Kit) -> None:
    """The controller of aggregated ClusterRoles has added ours to Kubernetes' own."""
    kit.elsewhere("create", "rolebinding", "viewer", "--clusterrole=view", "--user=kit-viewer")
    kit.elsewhere("create", "rolebinding", "editor", "--clusterrole=edit", "--user=kit-editor")

    def may(user: str, verb: str, resource: str) -> bool:
        try:
            return kit.elsewhere("auth", "can-i", verb, resource, f"--as={user}").strip() == "yes"
        except ClusterError:  # kubectl ends with 1
            return False

    asked = [("get", "mpijobs.kubeflow.org"), ("create", "mpijobs.kubeflow.org"), ("create", f"roles.{RBAC}")]
    waiting.until(
        "the rules are in view and edit",
        lambda: may("kit-viewer", *asked[0]) and all(may("kit-editor", *one) for one in asked),
        within_seconds=60,
        seen=lambda: str([one for one in asked if not may("kit-editor", *one)]),
    )
    assert not any(may("kit-viewer", *one) for one in asked[1:])


@pytest.mark.core
@pytest.mark.parametrize("controller", [AUTOSCALER, slow_nodes.NAME])
def test_the_controllers_of_the_kit_take_their_turns(kit: Kit, controller: str) -> None:
    """Ready after the first turn: its rights over all namespaces suffice."""
    kit.serving.wait("deployment", controller, condition="Available", within_seconds=150)


def wait_for_policy(namespace: Kubectl, account: str) -> None:
    def refused() -> str:
        return change_refused(namespace, account, TEMPLATE)

    waiting.until(
        "the policy is in force",
        lambda: "may change nothing of an MPIJob but" in refused(),
        within_seconds=60,
        seen=refused,
    )


def change_refused(namespace: Kubectl, account: str, change: dict[str, Any]) -> str:
    """What the API server answers to a patch of the job; empty: it is admitted. Nothing is changed."""
    user, patch = f"--as=system:serviceaccount:{account}", f"--patch={json.dumps(change)}"
    try:
        namespace("patch", "mpijob", JOB.name, "--type=merge", patch, user, "--dry-run=server")
    except ClusterError as error:
        return str(error)
    return ""


def refusal(cluster: Site, namespace: Kubectl, *, priority: str = CLASS, gpus: int = 1) -> str:
    """What the API server answers to whoever would make such a pod; empty: it is admitted. None is made."""
    image = store.PAUSE_IMAGE if cluster.machine else cluster.image
    asked = pod("asked", image=image, selector={}, priority=priority, gpus=gpus)
    try:
        namespace("create", "--dry-run=server", "-f", "-", stdin=as_list([asked]))
    except ClusterError as error:
        return str(error)
    return ""
