"""A rehearsal at a fake API server whose scheduler preempts, and at ones that do not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli.clusters.doctor import command
from hvd_elastic.client.connection.cluster_client import ClusterClient, RefusedError
from hvd_elastic.client.doctor import rehearsal
from hvd_elastic.client.doctor.rehearsal import Rehearsal, image_of_newest
from hvd_elastic.client.doctor.rehearsal_manifests import RehearsalImage
from hvd_elastic.client.doctor.rehearsal_record import RehearsalRecord
from hvd_elastic.client.doctor.rehearsal_stage import RehearsalRefusedError
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, Engine
from hvd_elastic.priorityclasses import DEFAULTS
from testbed.kube_api import KubeApi, Request, Status
from tests.hvd_elastic.client.logs.launchers import stamp

NAME = "hvd-elastic-rehearsal-test"
SPACE = f"/api/v1/namespaces/{NAME}"
PODS = f"{SPACE}/pods"
MPIJOBS = f"/apis/kubeflow.org/v2beta1/namespaces/{NAME}/mpijobs"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GPU = "nvidia.com/gpu"
Json = dict[str, Any]


class Cluster:
    """One node of two GPUs; a job of two workers trains at once; a preempted worker comes back when it can."""

    def __init__(self, api: KubeApi) -> None:
        self.api = api
        self.denied: set[str] = set()
        self.preempts = True
        self.steps: list[str] = []
        rbac, net = "/apis/rbac.authorization.k8s.io/v1", "/apis/networking.k8s.io/v1"
        collections = (
            *("/api/v1/namespaces", CLASSES, "/api/v1/pods", PODS, MPIJOBS, f"{SPACE}/serviceaccounts"),
            *(f"{root}/namespaces/{NAME}/{kind}" for root, kind in ((rbac, "roles"), (rbac, "rolebindings"))),
            f"{SPACE}/configmaps",
            f"{net}/namespaces/{NAME}/networkpolicies",
        )
        api.objects |= {path: {} for path in collections}
        api.answers[REVIEWS] = self._review
        api.streams[f"{PODS}/rehearsal-launcher-a/log"] = lambda _request: (line.encode() for line in self.steps)
        api.fault = self._react
        for one in DEFAULTS:
            api.put(CLASSES, {"metadata": {"name": one.name}})
        api.put("/api/v1/nodes", self._node())

    def hold(self, pod: str) -> None:
        """Somebody else's pod takes a GPU."""
        self.api.put("/api/v1/pods", self._pod(pod, namespace="team"))

    @property
    def left(self) -> set[str]:
        return set(self.api.objects["/api/v1/namespaces"])

    def _review(self, request: Request) -> Json:
        attributes = (request.body or {})["spec"]["resourceAttributes"]
        return {"status": {"allowed": f"{attributes['verb']} {attributes['resource']}" not in self.denied}}

    def _react(self, request: Request) -> None:
        match request.method, request.path:
            case "POST", path if path == MPIJOBS:
                meta = (request.body or {})["metadata"]
                meta |= {"uid": "uid-job", "creationTimestamp": "2026-01-01T00:00:00Z"}
                for name, role in (("rehearsal-launcher-a", "launcher"), ("rehearsal-worker-0", "worker"),
                                   ("rehearsal-worker-1", "worker")):  # fmt: skip
                    self.api.put(PODS, self._pod(name, role=role))
                self._train(2)
            case "POST", path if path == PODS:
                (request.body or {})["status"] = {"phase": "Running" if self.preempts else "Pending"}
                if self.preempts:
                    self.api.put(PODS, self._pod("rehearsal-worker-1", role="worker", uid="second"))
                    self._train(1)
            case "DELETE", path if path == f"{PODS}/inference":
                self._train(2)

    def _train(self, size: int) -> None:
        for _ in range(3):
            number = len(self.steps) + 1
            self.steps.append(f"{stamp(number / 10)} [0]<stdout>:rehearsal step {number} size {size}\n")

    def _node(self) -> Json:
        ready = [{"type": "Ready", "status": "True"}]
        return {"metadata": {"name": "a"}, "spec": {}, "status": {"conditions": ready, "allocatable": {GPU: "2"}}}

    def _pod(self, name: str, *, role: str = "", uid: str = "first", namespace: str = NAME) -> Json:
        launcher = {"name": "launcher", "state": {"running": {}}}
        return {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{name}-{uid}",
                "creationTimestamp": "2026-01-01T00:00:01Z",
                "labels": {
                    "training.kubeflow.org/job-name": "rehearsal",
                    "training.kubeflow.org/job-role": role,
                },
            },
            "spec": {
                "nodeName": "a",
                "containers": [{"name": "launcher", "resources": {"limits": {GPU: "1"} if role != "launcher" else {}}}],
            },
            "status": {"phase": "Running", "containerStatuses": [launcher]},
        }


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


@pytest.fixture
def there(api: KubeApi) -> Cluster:
    return Cluster(api)


@pytest.fixture
def client(api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
    path = api.kubeconfig(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    return ClusterClient.connect()


class Clock:
    """Time passes only while somebody waits, and then ten times as fast."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += 10 * seconds


def rehearse(client: ClusterClient, said: list[str] | None = None, *, image: str = "image") -> RehearsalRecord:
    clock = Clock()
    said = [] if said is None else said
    return Rehearsal(
        client,
        suffix="test",
        image=RehearsalImage(name=image) if image else None,
        say=said.append,
        clock=lambda: clock.now,
        pause=clock.pause,
    ).run()


def test_a_cluster_that_keeps_the_promise(there: Cluster, client: ClusterClient) -> None:
    said: list[str] = []
    record = rehearse(client, said)
    assert None not in {record.started, record.ran, record.left, record.shrank, record.grew}
    assert record.victim == "rehearsal-worker-1"
    assert [step.size for step in record.steps] == [2, 2, 2, 1, 1, 1, 2, 2, 2]
    assert there.left == set()
    assert said[-1] == "it is gone"


def test_a_scheduler_that_does_not_preempt(there: Cluster, client: ClusterClient) -> None:
    there.preempts = False
    record = rehearse(client)
    assert record.started is not None
    assert record.ran is None
    assert there.left == set()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_all_of_it_is_removed_however_it_ends(
    there: Cluster, client: ClusterClient, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    def interrupt(_lines: object) -> None:
        assert there.left == {NAME}
        raise interruption

    monkeypatch.setattr(rehearsal, "told_steps", interrupt)
    with pytest.raises(interruption):
        rehearse(client)
    assert there.left == set()


def test_faults_that_pass_leave_nothing_of_it_behind(there: Cluster, client: ClusterClient) -> None:
    react, left = there.api.fault, [503, 429, 500]

    def fail(request: Request) -> None:
        if (request.method, request.path) == ("DELETE", f"/api/v1/namespaces/{NAME}") and left:
            raise Status(left.pop(0))
        react(request)

    there.api.fault = fail
    said: list[str] = []
    rehearse(client, said)
    assert (there.left, left, said[-1]) == (set(), [], "it is gone")


def test_missing_rights_are_all_named_before_anything_is_made(there: Cluster, client: ClusterClient) -> None:
    there.denied = {"create namespaces", "list nodes", "get pods"}
    with pytest.raises(RehearsalRefusedError, match="you lack: create namespaces, list nodes, get pods"):
        rehearse(client)
    assert {request.path for request in there.api.requests} == {REVIEWS}


def test_it_never_preempts_others(there: Cluster, client: ClusterClient) -> None:
    there.hold("model")
    with pytest.raises(RehearsalRefusedError, match="a has 2, and team/model hold some"):
        rehearse(client)
    assert not any(request.method == "POST" and request.path != REVIEWS for request in there.api.requests)


def test_who_comes_meanwhile_is_not_preempted(there: Cluster, client: ClusterClient) -> None:
    react = there.api.fault

    def come(request: Request) -> None:
        react(request)
        if (request.method, request.path) == ("POST", MPIJOBS):
            there.hold("late")

    there.api.fault = come
    with pytest.raises(RehearsalRefusedError, match="team/late came"):
        rehearse(client)
    assert there.left == set()
    assert not any((request.method, request.path) == ("POST", PODS) for request in there.api.requests)


def test_a_namespace_that_is_somebody_else_s_is_left_alone(there: Cluster, client: ClusterClient) -> None:
    react = there.api.fault
    there.api.put("/api/v1/namespaces", {"metadata": {"name": NAME, "uid": "theirs"}})

    def refuse(request: Request) -> None:
        react(request)
        if (request.method, request.path) == ("POST", "/api/v1/namespaces"):
            raise Status(409)

    there.api.fault = refuse
    with pytest.raises(RefusedError):
        rehearse(client)
    assert there.left == {NAME}


def test_missing_classes_are_named_with_the_way_out(there: Cluster, client: ClusterClient) -> None:
    there.api.remove(CLASSES, "inference-pc")
    with pytest.raises(RehearsalRefusedError, match=r"no PriorityClass inference-pc: hvd-elastic priorityclasses"):
        rehearse(client)


def test_without_an_image_that_of_the_newest_job_is_taken(there: Cluster, client: ClusterClient) -> None:
    jobs = f"/apis/kubeflow.org/v2beta1/namespaces/{client.namespace}/mpijobs"
    tenants = {"creationTimestamp": "2026-01-09T00:00:00Z", "annotations": {ANNOTATION_SPEC: '{"image":"tenants"}'}}
    there.api.objects["/apis/kubeflow.org/v2beta1/mpijobs"] = {"theirs": {"metadata": {"name": "theirs", **tenants}}}
    there.api.objects[jobs] = {}
    with pytest.raises(RehearsalRefusedError, match=f"no job in namespace {client.namespace} .* name one with --image"):
        rehearse(client, image="")
    old, new, foreign = (
        {"metadata": {"creationTimestamp": f"2026-01-0{day}T00:00:00Z", "annotations": annotations}}
        for day, annotations in (
            (1, {ANNOTATION_SPEC: '{"image":"old"}'}),
            (2, {ANNOTATION_SPEC: '{"image":"new","engine":"torch"}'}),
            (3, {}),
        )
    )
    assert image_of_newest([new, foreign, old]) == RehearsalImage(name="new", engine=Engine.TORCH)
    assert image_of_newest([foreign, old]) == RehearsalImage(name="old", engine=Engine.HOROVOD)


def test_the_verb_shows_one_row_for_each_promise(
    there: Cluster, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: "test")
    done = CliRunner().invoke(command, ["--rehearse", "--image", "image", "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0
    checks = [row["check"].removeprefix("rehearsal-") for row in json.loads(done.stdout)]
    assert checks == ["start", "preemption", "training", "steps", "growth"]
    assert f"namespace {NAME}, on a; it is removed at the end" in done.stderr


def test_options_of_a_rehearsal_alone_are_refused() -> None:
    assert CliRunner().invoke(command, ["--image", "image"]).exit_code == 2
