"""One tenant's object must not stop the sharing of all others' GPUs."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.decide.autoscale.controller import Autoscaler
from hvd_elastic.decide.autoscale.decision import AutoscalerMemory, SharedCluster, decide
from hvd_elastic.decide.autoscale.demand_store import DemandStore, from_text, to_text
from hvd_elastic.decide.autoscale.forecast.hpa_demand import hpa_demand
from hvd_elastic.decide.autoscale.forecast.scaled_object import scaled_object_demand
from hvd_elastic.decide.autoscale.observed_speeds import MOST_SIZES, ObservedSpeeds
from hvd_elastic.decide.autoscale.pod_reader import GpuPodReader
from hvd_elastic.decide.autoscale.shared_cluster import WHOLE_NODE, GpuNode, GpuPod, counted
from hvd_elastic.decide.autoscale.state_reader import StateReader
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_SPEC,
    ANNOTATION_STATUS,
    ANNOTATION_WANTED_WORKERS,
    GPU_RESOURCE,
)
from hvd_elastic.policy.reserve import reserve
from testbed.kube_api import JOBS, NODES, PODS, KubeApi
from tests import hostile_values
from tests.hvd_elastic.decide.autoscale.model_cluster import START, job, node, pod

Json = dict[str, Any]

DESCRIPTION = {
    "name": "j",
    "image": "a/b:1",
    "command": ["python", "t.py"],
    "workers": {"min": 1, "max": 8, "gpus": 1},
    "autoscale": {"cooldown": 1},
}
NOTE = {"unix": START - 500, "before": 1, "workers": 2, "reason": "idle", "ceiling": 4, "speeds": {"2": [10.0, 3]}}


def mpijob(name: str = "good", **annotations: str) -> Json:
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": {ANNOTATION_SPEC: json.dumps({**DESCRIPTION, "name": name}), **annotations},
        },
        "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 8, "template": {"spec": {}}}}},
    }


def gpu_pod(name: str, gpus: object, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "evil", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}], **spec},
        "status": {"phase": "Pending"},
    }


def gpu_node(name: str, gpus: object) -> Json:
    status = {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


@pytest.mark.parametrize(("gpus", "count"), [("1k", 1000), ("1e3", 1000), ("8", 8), ("8000m", 8), (2, 2)])
def test_gpus_are_a_quantity(gpus: object, count: int) -> None:
    (read,), has = GpuPod.each_from_json(gpu_pod("p", gpus)), GpuNode.from_json(gpu_node("n", gpus), GPU_RESOURCE)
    assert has is not None
    assert (read.gpus, has.gpus) == (count, count)


@pytest.mark.parametrize("gpus", ["1e99", "-1", "1500m", "many", "9" * 5000, True])
def test_a_pod_whose_gpus_cannot_be_read_occupies_its_node(gpus: object) -> None:
    with pytest.raises(ValueError):
        GpuPod.each_from_json(gpu_pod("p", gpus))
    held = GpuPod.occupying(gpu_pod("p", gpus, nodeName="n1"))
    assert held is not None
    assert (held.node, held.gpus) == ("n1", WHOLE_NODE)
    assert GpuPod.occupying(gpu_pod("p", gpus)) is None
    ended = {**gpu_pod("p", gpus, nodeName="n1"), "status": {"phase": "Failed"}}
    assert GpuPod.each_from_json(ended) == ()
    assert GpuPod.occupying(ended) is None
    shared = [node("n1", 4), node("n2", 4)]
    assert [one.gpus for one in counted([held], shared)] == [4]
    decided, _ = decide(
        SharedCluster(jobs=(job(asked=8),), nodes=tuple(shared), pods=tuple(counted([held], shared))),
        AutoscalerMemory(),
        START,
    )
    assert [one.workers for one in decided] == [4]


def test_a_pod_that_no_node_can_hold_takes_no_gpu_from_training() -> None:
    """Neither as one that waits, nor by a node's name that its owner has written, of which there may be many."""
    nodes = (node("n1", 4), node("n2", 4))
    waits = pod("waits", gpus=1000, asked=START)
    assert list(counted([waits], nodes)) == []
    placed = [pod(f"placed-{n}", gpus=1000, node="n1") for n in range(5)]
    found = tuple(counted(placed, nodes))
    decided, memory = decide(SharedCluster(jobs=(job(asked=8),), nodes=nodes, pods=found), AutoscalerMemory(), START)
    assert [one.workers for one in decided] == [4]
    assert memory.demand.windows[-1].highest == 4


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubeApi]:
    api = KubeApi()
    api.answers["/version"] = lambda _request: {"gitVersion": "v1.34.0"}
    api.put(NODES, gpu_node("n1", "8"))
    api.put(NODES, gpu_node("broken", "many"))
    api.put(JOBS, mpijob())
    yield api
    api.stop()


def cluster_of(api: KubeApi) -> ClusterClient:
    return ClusterClient(Session(Login(server=f"http://127.0.0.1:{api.port}", namespace="default")))


def wanted(api: KubeApi, name: str = "good") -> str | None:
    found: str | None = api.objects[JOBS][name]["metadata"]["annotations"].get(ANNOTATION_WANTED_WORKERS)
    return found


def test_the_loop_goes_on_and_names_each_object_once(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    no_worker = {**mpijob("no-worker"), "spec": {"mpiReplicaSpecs": {}}}
    for hostile in (mpijob("deep", **{ANNOTATION_STATUS: hostile_values.DEEP}), no_worker):
        api.put(JOBS, hostile)
    for waits in (gpu_pod("thousand", "1k"), gpu_pod("unheard-of", "1e99"), gpu_pod("placed", "1e99", nodeName="n1")):
        api.put(PODS, waits)
    hpas = [{"metadata": {"name": "odd"}, "spec": {"scaleTargetRef": {}, "maxReplicas": "many"}}]
    api.answers["/apis/autoscaling"] = lambda _request: {"versions": [{"groupVersion": "autoscaling/v2"}]}
    api.answers["/apis/autoscaling/v2/horizontalpodautoscalers"] = lambda _request: {"metadata": {}, "items": hpas}
    cluster, stop, turns = cluster_of(api), threading.Event(), threading.Semaphore(0)
    scaler = Autoscaler(cluster, StateReader(cluster), DemandStore(cluster, "default"), may_act=lambda: True)
    loop = threading.Thread(target=scaler.run, args=(stop,), kwargs={"period": 0.01, "alive": turns.release})
    loop.start()
    for _ in range(3):
        assert turns.acquire(timeout=60)
    assert wanted(api) == "1"  # `placed` has its only node
    api.remove(PODS, "placed")
    with api.changed:
        assert api.changed.wait_for(lambda: (wanted(api), wanted(api, "deep")) != ("1", "1"), timeout=60)
    stop.set()
    loop.join(60)
    assert not loop.is_alive()
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert sorted(sentence.split(" cannot")[0] for sentence in said) == [
        "the HorizontalPodAutoscaler /odd",
        "the MPIJob default/no-worker",
        "the node /broken",
        "the pod evil/placed",
        "the pod evil/unheard-of",
    ]


def test_a_pod_that_is_mended_is_read_again(api: KubeApi) -> None:
    api.put(PODS, gpu_pod("p", "1e99", nodeName="n1"))
    reader = GpuPodReader(cluster_of(api))
    assert [one.gpus for one in reader.read()] == [WHOLE_NODE]
    api.put(PODS, gpu_pod("p", "2", nodeName="n1"))
    assert [one.gpus for one in reader.read()] == [2]
    api.put(PODS, gpu_pod("p", "1e99"))
    assert reader.read() == ()


statuses = hostile_values.documents(
    LiveStatus,
    unix=st.just(START),
    since=st.sampled_from([START - 100, START]),
    activity=st.just(Activity.TRAINING),
    steps_per_second=st.floats(-1e300, 1e300) | st.floats(0, 1e3),
)
notes = hostile_values.altered(NOTE).map(json.dumps)


@given(
    jobs=st.lists(
        st.builds(
            lambda status, note, wanted, description: {
                ANNOTATION_STATUS: status,
                ANNOTATION_AUTOSCALER: note,
                ANNOTATION_WANTED_WORKERS: wanted,
                ANNOTATION_SPEC: description,
            },
            statuses | hostile_values.texts,
            notes | hostile_values.texts,
            st.integers(-1, 10).map(str) | hostile_values.words,
            hostile_values.altered(DESCRIPTION).map(json.dumps) | hostile_values.texts,
        ),
        min_size=1,
        max_size=3,
    ),
    pods=st.lists(hostile_values.altered(gpu_pod("p", "2", nodeName="n1")), max_size=3),
    nodes=st.lists(hostile_values.altered(gpu_node("n2", "4")), max_size=2),
    demand=hostile_values.altered({"care": 1.0, "windows": [[300, 1, 4, 1]]}).map(json.dumps) | hostile_values.texts,
)
def test_whatever_the_cluster_says_a_turn_is_taken(
    jobs: list[dict[str, str]], pods: list[Json], nodes: list[Json], demand: str
) -> None:
    reading = ObjectReading("object", lambda _sentence: None)
    found = tuple(
        reading.each(
            [mpijob(), *(mpijob(f"j{n}", **annotations) for n, annotations in enumerate(jobs))], AutoscaledJob.from_json
        )
    )
    assert "default/good" in {one.name for one in found}
    room = (node("n1"), *reading.each(nodes, partial(GpuNode.from_json, resource=GPU_RESOURCE)))
    held = (*chain(*reading.each(pods, GpuPod.each_from_json)), *reading.each(pods, GpuPod.occupying))
    memory = AutoscalerMemory()
    try:
        memory = AutoscalerMemory(demand=from_text(demand))
    except ValueError:
        assert to_text(memory.demand)
    state = SharedCluster(jobs=found, nodes=room, pods=tuple(counted(held, room)))
    for now in (START, START + 100.0):
        decisions, memory = decide(state, memory, now)
        for one in decisions:
            assert one.job.min <= one.workers <= one.job.max
            assert ScalingNote.of_job({"metadata": {"annotations": {ANNOTATION_AUTOSCALER: one.note.to_json()}}})
    assert 0 <= reserve(memory.demand, START, unclaimed=8, quantile=0.95) <= 8


@given(hostile_values.altered({"unix": 1, "before": 1, "workers": 1, "reason": "", "speeds": {"3": [2.0, 1]}}))
def test_speeds_that_none_can_have_are_forgotten(document: Any) -> None:
    note = ScalingNote.of_job({"metadata": {"annotations": {ANNOTATION_AUTOSCALER: json.dumps(document)}}})
    if note is None:
        return
    speeds = ObservedSpeeds.noted(note.speeds)
    assert len(speeds.means) <= MOST_SIZES
    assert all(speed > 0 for speed in speeds.speeds(8)[1:])


@pytest.mark.parametrize("speeds", [{"1": [0, 1]}, {"0": [1.0, 1]}, {"1": [1.0, 0]}, {"1": [-5.0, 1]}])
def test_a_speed_of_nothing_divides_nothing(speeds: Json) -> None:
    text = json.dumps({**NOTE, "speeds": speeds})
    note = ScalingNote.of_job({"metadata": {"annotations": {ANNOTATION_AUTOSCALER: text}}})
    assert note is not None
    assert ObservedSpeeds.noted(note.speeds) == ObservedSpeeds()


HPA = {
    "metadata": {"name": "h", "namespace": "team"},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "d"},
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": {"target": {"averageUtilization": 50, "averageValue": "1k"}}}],
    },
    "status": {
        "currentReplicas": 1,
        "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 90}}}],
    },
}


@given(hostile_values.altered(HPA))
def test_an_hpa_that_cannot_be_read_leaves_the_others(hpa: Any) -> None:
    reading = ObjectReading("HorizontalPodAutoscaler", lambda _sentence: None)
    found = list(reading.each([hpa, HPA], hpa_demand))
    assert found[-1].replicas == 2


SCALED_OBJECT = {
    "metadata": {"name": "s", "namespace": "team"},
    "spec": {"scaleTargetRef": {"name": "d"}, "minReplicaCount": 2, "maxReplicaCount": 3},
    "status": {"conditions": [{"type": "Active", "status": "True"}], "scaleTargetGVKR": {"kind": "Deployment"}},
}


@given(hostile_values.altered(SCALED_OBJECT))
def test_a_scaled_object_that_cannot_be_read_leaves_the_others(scaled: Any) -> None:
    reading = ObjectReading("ScaledObject", lambda _sentence: None)
    found = list(reading.each([scaled, SCALED_OBJECT], scaled_object_demand))
    assert found[-1].replicas == 2
