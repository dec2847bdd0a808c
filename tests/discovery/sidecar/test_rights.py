"""The sidecar works with the rights of its job's Role: the API server refuses everything else, as RBAC does."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hvd_elastic.client.operations.resource_paths import object_path
from hvd_elastic.discovery.sidecar.record import ledger_writer
from hvd_elastic.mpijob.contract import (
    ANNOTATION_STATUS,
    ANNOTATION_WANTED_WORKERS,
    ENV_OWNED,
    LEDGER_KEY,
    WorkerState,
)
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting import rbac
from hvd_elastic.setup.platform_kit.mpijob_guard import mpijob_guard
from testbed import admission_policies
from testbed.kube_api import CONFIG_MAPS, EVENTS, JOBS, NODES, PODS, Json, KubeApi, Request, Status, mpijob, pod
from tests.discovery.conftest import Start, until
from tests.discovery.sidecar.launcher.test_launcher_job import BATCH, launcher
from tests.discovery.workers import Workers
from tests.mpijob.jobs import job, pods

JOB = job(name="job", namespace="default", workers="1:3", disruption_budget=True, monitor=True)
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


def attributes(request: Request) -> tuple[str, str, str, str]:
    """Group, resource, verb and name, as the API server takes them from a request (`RequestInfoFactory`).

    The name of a list or a watch is that of its field selector `metadata.name`. A POST has none. A server-side apply
    of what is not there is asked about as a `create` with the name in its path, once more.
    """
    parts = request.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    resource, *name = rest[2:] if rest[0] == "namespaces" else rest
    if name:
        return group, resource, VERBS.get(request.method, "get"), name[0]
    selected = dict(pair.split("=", 1) for pair in request.query.get("fieldSelector", "").split(",") if pair)
    verb = VERBS.get(request.method, "watch" if request.is_watch else "list")
    return group, resource, verb, selected.get("metadata.name", "") if request.method == "GET" else ""


def allows(rules: Sequence[Mapping[str, Any]], request: Request) -> bool:
    """Whether a rule covers the request (`RuleAllows` in Kubernetes' `plugin/pkg/auth/authorizer/rbac`)."""
    group, resource, verb, name = attributes(request)
    return any(
        group in rule["apiGroups"]
        and resource in rule["resources"]
        and verb in rule["verbs"]
        and name in rule.get("resourceNames", [name])
        for rule in rules
    )


@pytest.fixture
def job_before_and_after(api: KubeApi) -> list[tuple[Json, Json]]:
    """The MPIJob before and after each change that was made by a request."""
    found: list[tuple[Json, Json]] = []
    patch = api.patch

    def note(path: str, name: str, body: Json) -> Json:
        before = copy.deepcopy(api.objects[path][name])
        after = patch(path, name, body)
        if path == JOBS:
            found.append((before, after))
        return after

    api.patch = note  # type: ignore[method-assign]
    return found


@pytest.fixture
def refused(api: KubeApi) -> list[tuple[str, str, str, str]]:
    """What was refused. The job's objects are there, as `generate` wrote them."""
    made = render(JOB)
    (rules,) = (one["rules"] for one in made if one["kind"] == "Role")
    for one in made:
        if one["kind"] == "MPIJob":
            continue
        collection = object_path(one).rpartition("/")[0]
        api.objects.setdefault(collection, {})
        api.put(collection, one)
    api.objects[BATCH] = {}
    api.put(BATCH, {"metadata": {"name": "job-launcher", "uid": "job-uid"}, "spec": {"backoffLimit": 3}, "status": {}})
    found: list[tuple[str, str, str, str]] = []

    def ask(request: Request) -> None:
        if not allows(rules, request) or (_makes(api, request) and not allows(rules, replace(request, method="POST"))):
            found.append(attributes(request))
            raise Status(403)

    api.fault = ask
    return found


def test_all_that_the_sidecar_does_is_allowed(
    api: KubeApi,
    start: Start,
    workers: Workers,
    refused: list[tuple[str, str, str, str]],
    job_before_and_after: list[tuple[Json, Json]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = pods(JOB)[0]["initContainers"][0]["env"]
    owned = next(one["value"] for one in environment if one["name"] == ENV_OWNED).split()
    for index in (1, 2, 3):
        workers.say(f"127.0.1.{index}", state=WorkerState.TRAINING)
    api.put(PODS, launcher("now"))
    api.put(PODS, launcher("drained", deletionTimestamp="2026-01-01T00:00:00Z"))
    for index in (0, 1, 2):
        api.put(PODS, pod(index))
    monkeypatch.setattr(ledger_writer, "CHECK_SECONDS", 0.1)
    running = start(pod_uid="now", owned=tuple(owned))
    running.shows(0, 1, 2)

    until(lambda: api.objects[BATCH]["job-launcher"]["spec"]["backoffLimit"] > 3)
    until(lambda: all(_object(api, path)["metadata"].get("ownerReferences") for path in owned))
    until(lambda: LEDGER_KEY in _object(api, "/api/v1/namespaces/default/configmaps/job-ledger").get("data", {}))
    until(lambda: ANNOTATION_STATUS in api.objects[JOBS]["job"]["metadata"]["annotations"])

    api.put(PODS, pod(2, phase="Failed", ready=False, reason="Evicted"))
    until(lambda: "job-worker-2" not in api.objects[PODS])
    assert "Evicted" in json.dumps(list(api.objects[EVENTS].values()))

    api.remove(CONFIG_MAPS, "job-ledger")
    until(lambda: LEDGER_KEY in api.objects[CONFIG_MAPS].get("job-ledger", {}).get("data", {}))

    api.patch(JOBS, "job", {"metadata": {"annotations": {ANNOTATION_WANTED_WORKERS: "1"}}})
    job_before_and_after.pop()  # a person's
    running.shows(0)
    workers.say("127.0.1.2", generation=1)
    until(lambda: api.objects[JOBS]["job"]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 1)
    assert set(refused) <= {("", "nodes", "list", "")}, "nodes are read only where the job has `read_nodes`"
    for before, after in job_before_and_after:
        assert refused_by_the_kit(before, after) == ""


def refused_by_the_kit(before: Json, after: Json) -> str:
    """What the policy for sidecars answers to the change; empty: it is admitted."""
    request = {
        "namespace": "default",
        "name": "job",
        "userInfo": {"username": f"system:serviceaccount:default:{rbac.name(JOB)}"},
    }
    policy = mpijob_guard()[0]
    return admission_policies.refusal(policy, request=request, object=after, oldObject=before)


def _makes(api: KubeApi, request: Request) -> bool:
    """Whether this is a server-side apply of what is not there."""
    collection, _, name = request.path.rpartition("/")
    is_apply = request.headers.get("Content-Type") == "application/apply-patch+yaml"
    return is_apply and name not in api.objects[collection]


def _object(api: KubeApi, path: str) -> Mapping[str, Any]:
    collection, _, name = path.rpartition("/")
    return api.objects[collection][name]


def test_a_pod_of_another_job_is_out_of_reach(api: KubeApi, refused: list[tuple[str, str, str, str]]) -> None:
    """What a stolen token could ask for."""

    def may(method: str, path: str, content: str = "") -> bool:
        try:
            api.fault(Request(method, path, {}, None, {"Content-Type": content}))
        except Status:
            return False
        return True

    assert may("DELETE", f"{PODS}/job-worker-0")
    assert not may("DELETE", f"{PODS}/job-worker-3"), "the job has three workers"
    assert not may("DELETE", f"{PODS}/another-worker-0")
    assert not may("DELETE", PODS)
    assert not may("GET", NODES)
    assert not may("PATCH", f"{JOBS}/another")
    for kind in ("roles", "rolebindings"):
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{kind}"
        assert not may("PATCH", f"{path}/job-discovery"), "it would bind another account to its rights"
        assert not may("POST", path)
    assert not may("DELETE", f"{JOBS}/{mpijob()['metadata']['name']}")
    api.remove(CONFIG_MAPS, "job-ledger")
    assert may("PATCH", f"{CONFIG_MAPS}/job-ledger", "application/apply-patch+yaml")
    assert not may("PATCH", f"{CONFIG_MAPS}/another", "application/apply-patch+yaml")
    assert not may("POST", CONFIG_MAPS)
    assert refused
