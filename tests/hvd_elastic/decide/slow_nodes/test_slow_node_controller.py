"""The loop over an API server: what it writes onto an MPIJob, takes out again, and leaves alone."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.slow_nodes.exclusion_decision import EXCLUDED_SECONDS, PATIENCE_SECONDS
from hvd_elastic.decide.slow_nodes.slow_node_controller import SlowNodeController
from hvd_elastic.discovery.kube.node_exclusion import HOSTNAME, REQUIRED, exclusion_text
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES, ANNOTATION_SPEC, ANNOTATION_STATUS
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from testbed.kube_api import JOBS, NODES, PODS, KubeApi, Request, node, pod

BEGAN = 1.8e9
SPEC: dict[str, Any] = {
    "name": "job",
    "namespace": "default",
    "image": "registry/train:1",
    "command": ["python", "train.py"],
    "workers": {"min": 1, "max": 2, "cpu": "1", "memory": "1Gi", "gpus": 0},
    "slow_workers": "replace",
}
POOL = {"key": "pool", "operator": "In", "values": ["a"]}


class Cluster:
    """A job of two workers on two nodes, of which the second is slow, and a third node. A test moves the time."""

    def __init__(self, api: KubeApi) -> None:
        self.api, self.now = api, BEGAN
        for name in ("n0", "n1", "n2"):
            made = node(name, labels={HOSTNAME: name})
            made["status"]["allocatable"] = {"pods": "110", "cpu": "4", "memory": "8Gi"}
            api.put(NODES, made)
        self.submit()
        client = ClusterClient(Session(Login(server=f"http://127.0.0.1:{api.port}")))
        self.controller = SlowNodeController(client, wall=lambda: self.now)

    def submit(self, **keys: Any) -> None:
        (job,) = (one for one in render(read_job(json.dumps({**SPEC, **keys}))) if one["kind"] == "MPIJob")
        job["metadata"] |= {"uid": "job-uid"}
        self.api.put(JOBS, job)
        for index in range(2):
            self.api.put(PODS, pod(index, owner="job-uid", node=f"n{index}"))

    def say(self, slow: dict[str, float]) -> None:
        """By the sidecar."""
        status = LiveStatus(unix=self.now, activity=Activity.TRAINING, since=BEGAN, workers=2, slow=slow)
        self.annotate(ANNOTATION_STATUS, status.to_json())

    def annotate(self, key: str, text: str) -> None:
        self.api.patch(JOBS, "job", {"metadata": {"annotations": {key: text}}})

    def turn(self, *, after: float) -> None:
        self.now = BEGAN + after
        self.say({"job-worker-1": BEGAN})
        self.controller.turn()

    @property
    def job(self) -> dict[str, Any]:
        return copy.deepcopy(self.api.objects[JOBS]["job"])

    @property
    def excluded(self) -> str:
        return str(self.job["metadata"]["annotations"].get(ANNOTATION_EXCLUDED_NODES, ""))

    @property
    def pod_spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
        return found

    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.api.requests)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    api = KubeApi()
    yield Cluster(api)
    api.stop()


def not_there(*nodes: str) -> dict[str, Any]:
    return {"key": HOSTNAME, "operator": "NotIn", "values": [*nodes]}


def test_the_node_of_a_slow_worker_is_excluded_for_a_day(cluster: Cluster) -> None:
    before = cluster.job
    cluster.turn(after=PATIENCE_SECONDS - 1)
    assert cluster.writes() == 0
    cluster.turn(after=PATIENCE_SECONDS)
    assert cluster.excluded == exclusion_text({"n1": cluster.now + EXCLUDED_SECONDS})
    terms = cluster.pod_spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [not_there("n1")]}]
    cluster.turn(after=PATIENCE_SECONDS + 20)
    assert cluster.writes() == 1, "there is nothing else to do"
    cluster.now += EXCLUDED_SECONDS
    cluster.controller.turn()
    assert cluster.job["spec"] == before["spec"]
    assert ANNOTATION_EXCLUDED_NODES not in cluster.job["metadata"]["annotations"]


def test_what_else_keeps_the_workers_to_their_nodes_stays(cluster: Cluster) -> None:
    cluster.submit(node_labels={"pool": "a"})
    for name in ("n0", "n1"):
        cluster.api.patch(NODES, name, {"metadata": {"labels": {"pool": "a"}}})
    before = cluster.pod_spec["affinity"]
    assert before["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [{"matchExpressions": [POOL]}]
    cluster.turn(after=PATIENCE_SECONDS)
    terms = cluster.pod_spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [POOL, not_there("n1")]}]
    cluster.now += EXCLUDED_SECONDS + 1
    cluster.controller.turn()
    assert cluster.pod_spec["affinity"] == before


@pytest.mark.parametrize(
    "keys",
    [
        {"slow_workers": "report"},
        {"workers": {**SPEC["workers"], "min": 9, "max": 12}},
        {"suspend": True},
        {"node_labels": {"kubernetes.io/hostname": "n1"}},
    ],
    ids=str,
)
def test_a_job_that_does_not_ask_or_needs_the_node_is_left_alone(cluster: Cluster, keys: dict[str, Any]) -> None:
    cluster.submit(**keys)
    cluster.turn(after=PATIENCE_SECONDS)
    assert cluster.writes() == 0


@pytest.mark.parametrize("said", ["not JSON", '{"slow": {"job-worker-1": "x"}}', '{"unix": 1e9, "slow": []}'])
def test_a_status_that_cannot_be_read_says_nothing(cluster: Cluster, said: str) -> None:
    cluster.now += 600
    cluster.annotate(ANNOTATION_STATUS, said)
    assert cluster.controller.turn() == {}


def test_the_successor_on_another_node_is_not_taken_for_the_slow_one(cluster: Cluster) -> None:
    cluster.api.put(PODS, pod(1, uid="later", owner="job-uid", node="n2", since="2027-02-01T00:00:00Z"))
    made = cluster.api.objects[PODS]["job-worker-1"]
    made["metadata"]["creationTimestamp"] = "2027-02-01T00:00:00Z"
    cluster.turn(after=PATIENCE_SECONDS)
    assert cluster.excluded == ""


def test_nothing_is_written_while_the_operator_works(cluster: Cluster) -> None:
    cluster.api.remove(PODS, "job-worker-0")
    cluster.turn(after=PATIENCE_SECONDS)
    assert cluster.writes() == 0
    cluster.api.put(PODS, pod(0, owner="job-uid", node="n0"))
    cluster.turn(after=PATIENCE_SECONDS + 20)
    assert cluster.excluded.startswith("n1=")


def test_an_exclusion_that_somebody_applied_away_comes_again(cluster: Cluster) -> None:
    cluster.turn(after=PATIENCE_SECONDS)
    said, placed = cluster.excluded, cluster.pod_spec["affinity"]
    worker = {"template": {"spec": {"affinity": None}}}
    cluster.api.patch(JOBS, "job", {"spec": {"mpiReplicaSpecs": {"Worker": worker}}})
    cluster.turn(after=PATIENCE_SECONDS + 20)
    assert (cluster.excluded, cluster.pod_spec["affinity"]) == (said, placed)


def test_a_job_that_has_changed_since_it_was_read_waits_for_the_next_turn(cluster: Cluster) -> None:
    def change_it(request: Request) -> None:
        if request.path == NODES:
            cluster.annotate("example.com/seen", "now")
            cluster.api.fault = lambda _request: None

    cluster.api.fault = change_it
    cluster.turn(after=PATIENCE_SECONDS)
    assert cluster.excluded == ""
    cluster.turn(after=PATIENCE_SECONDS + 20)
    assert cluster.excluded.startswith("n1=")


@pytest.mark.parametrize(
    "affinity",
    [{"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["x"]}}}, {"nodeAffinity": "x"}, [1]],
    ids=str,
)
def test_a_job_that_cannot_be_read_does_not_stop_it(cluster: Cluster, affinity: Any) -> None:
    """Whoever may make one would stop it for all."""
    odd = cluster.job
    odd["metadata"] |= {"name": "another", "uid": "another"}
    status = LiveStatus(unix=BEGAN + PATIENCE_SECONDS, activity=Activity.TRAINING, since=BEGAN, slow={"a": BEGAN})
    odd["metadata"]["annotations"] |= {ANNOTATION_STATUS: status.to_json()}
    odd["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"] = affinity
    cluster.api.objects[JOBS] = {"another": odd, **cluster.api.objects[JOBS]}
    cluster.turn(after=PATIENCE_SECONDS)
    assert cluster.excluded.startswith("n1=")
    cluster.api.put(JOBS, odd | {"metadata": {**odd["metadata"], "annotations": {ANNOTATION_SPEC: "{}"}}})
    cluster.turn(after=PATIENCE_SECONDS + 20)
