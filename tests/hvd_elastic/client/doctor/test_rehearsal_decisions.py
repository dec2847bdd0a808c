"""Where a rehearsal takes place, what it makes, and what is made of what it saw."""

from dataclasses import replace
from typing import Any

import pytest

from hvd_elastic.client.doctor.diagnosis import Level
from hvd_elastic.client.doctor.rehearsal_manifests import RehearsalImage, collection, inference, job, namespace
from hvd_elastic.client.doctor.rehearsal_record import (
    RehearsalRecord,
    ToldStep,
    judge,
    longest_pause,
    told_steps,
    trouble_of,
)
from hvd_elastic.client.doctor.rehearsal_stage import RehearsalRefusedError, Stage, choose_stage, gpus_held
from hvd_elastic.client.logs.log_line import parse_line
from hvd_elastic.mpijob.contract import Engine

GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def node(name: str, gpus: int = 0, *, ready: bool = True, cordoned: bool = False, resource: str = GPU) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": cordoned},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "allocatable": {"cpu": "4", **({resource: str(gpus)} if gpus else {})},
        },
    }


def holder(name: str, on: str, gpus: int = 1, phase: str = "Running") -> Json:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {GPU: str(gpus)}}}, {}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("nodes", "stage"),
    [
        ([node("a", 2)], Stage(nodes=("a",), inference_node="a", inference_gpus=1)),
        ([node("a", 1), node("b", 8)], Stage(nodes=("b",), inference_node="b", inference_gpus=7)),
        ([node("b", 1), node("a", 1), node("c", 1)], Stage(nodes=("a", "b"), inference_node="a", inference_gpus=1)),
    ],
)
def test_exactly_one_worker_must_go(nodes: list[Json], stage: Stage) -> None:
    assert choose_stage(nodes, [], GPU) == stage


def test_a_node_where_somebody_holds_a_gpu_is_left_alone() -> None:
    nodes = [node("a", 4), node("b", 4)]
    assert choose_stage(nodes, [holder("model", "a")], GPU).nodes == ("b",)
    assert choose_stage(nodes, [holder("done", "a", phase="Succeeded")], GPU).nodes == ("a",)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("a")], "no node offers nvidia.com/gpu"),
        ([node("a", 2, resource="amd.com/gpu")], "no node offers nvidia.com/gpu"),
        ([node("a", 2, ready=False)], "a has 2, and is not Ready"),
        ([node("a", 2, cordoned=True)], "a has 2, and is cordoned"),
        ([node("a", 1)], "a has 1, and is free"),
        ([node("held", 2)], "held has 2, and team/model hold some"),
    ],
)
def test_a_refusal_says_what_is_against_each_node(nodes: list[Json], said: str) -> None:
    with pytest.raises(RehearsalRefusedError, match=said):
        choose_stage(nodes, [holder("model", "held")], GPU)


IMAGE = RehearsalImage(name="image")
STAGE = Stage(nodes=("a", "b"), inference_node="a", inference_gpus=3)


def placed_on(pod: Json) -> list[str]:
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [value for term in terms for value in term["matchFields"][0]["values"]]


def test_the_job_s_workers_run_on_the_stage_and_nowhere_else() -> None:
    made = job("space", IMAGE, STAGE, "amd.com/gpu")
    (mpijob,) = [one for one in made if one["kind"] == "MPIJob"]
    workers = mpijob["spec"]["mpiReplicaSpecs"]["Worker"]
    pod = workers["template"]["spec"]
    assert workers["replicas"] == 2
    assert placed_on(pod) == ["a", "b"]
    assert pod["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"
    assert GPU not in pod["containers"][0]["resources"]["limits"]
    assert {one["metadata"]["namespace"] for one in made} == {"space"}


def test_an_image_without_horovod_rehearses_over_torch() -> None:
    made = job("space", RehearsalImage(name="image", engine=Engine.TORCH), STAGE, GPU)
    (mpijob,) = [one for one in made if one["kind"] == "MPIJob"]
    for replica in mpijob["spec"]["mpiReplicaSpecs"].values():
        assert {"name": "HVD_ELASTIC_ENGINE", "value": "torch"} in replica["template"]["spec"]["containers"][0]["env"]


def test_inference_asks_for_what_makes_one_worker_go() -> None:
    pod = inference("space", "image", STAGE, GPU)["spec"]
    assert placed_on(pod) == ["a"]
    assert pod["priorityClassName"] == "inference-pc"
    assert pod["containers"][0]["resources"]["limits"][GPU] == "3"


def test_where_a_manifest_is_posted() -> None:
    assert collection(namespace("x")) == "/api/v1/namespaces"
    assert collection(inference("s", "image", STAGE, GPU)) == "/api/v1/namespaces/s/pods"
    paths = {collection(one) for one in job("s", IMAGE, STAGE, GPU)}
    assert "/apis/kubeflow.org/v2beta1/namespaces/s/mpijobs" in paths
    assert "/apis/networking.k8s.io/v1/namespaces/s/networkpolicies" in paths
    assert "/apis/rbac.authorization.k8s.io/v1/namespaces/s/rolebindings" in paths


def steps(*told: tuple[int, int, float]) -> list[ToldStep]:
    return [ToldStep(number=number, size=size, unix=unix) for number, size, unix in told]


GOOD = RehearsalRecord(
    workers=2,
    started=20.0,
    ran=2.5,
    left=1.5,
    victim="rehearsal-worker-1",
    shrank=1.0,
    grew=6.0,
    steps=steps((1, 2, 0.0), (2, 2, 0.1), (3, 1, 0.5), (4, 1, 0.6), (5, 2, 0.9)),
)


def levels(record: RehearsalRecord) -> dict[str, Level]:
    return {one.check.removeprefix("rehearsal-"): one.verdict.level for one in judge(record)}


def evidence(record: RehearsalRecord, check: str) -> str:
    return next(one.verdict.evidence for one in judge(record) if one.check == f"rehearsal-{check}")


def changed(**values: Any) -> RehearsalRecord:
    return replace(GOOD, **values)


def test_a_promise_that_is_kept() -> None:
    assert set(levels(GOOD).values()) == {Level.OK}
    assert evidence(GOOD, "preemption") == (
        "an inference pod ran 2.5 s after it was asked for; rehearsal-worker-1 was gone after 1.5 s"
    )
    assert evidence(GOOD, "training") == "it went on with fewer workers after 1.0 s, and stood still for 0.40 s at most"
    assert evidence(GOOD, "steps") == "0 of 5 steps were done again"
    assert evidence(GOOD, "growth") == "2 workers trained 6.0 s after inference had gone"


@pytest.mark.parametrize(
    ("values", "check", "level"),
    [
        ({"started": None, "trouble": "w waits: ErrImagePull"}, "start", Level.ERROR),
        ({"ran": None, "trouble": "inference is not placed: 0/2"}, "preemption", Level.ERROR),
        ({"ran": 31.0}, "preemption", Level.WARNING),
        ({"shrank": None}, "training", Level.ERROR),
        ({"grew": None}, "growth", Level.ERROR),
        ({"steps": steps((1, 2, 0), (2, 2, 1), (2, 1, 2))}, "steps", Level.WARNING),
    ],
)
def test_each_promise_that_is_not_kept_is_found(values: dict[str, Any], check: str, level: Level) -> None:
    record = changed(**values)
    assert {name for name, found in levels(record).items() if found is not Level.OK} == {check}
    assert levels(record)[check] is level
    assert record.trouble in evidence(record, check)
    assert all(one.verdict.fix for one in judge(record) if one.verdict.level is not Level.OK)


def test_steps_are_read_from_the_log_and_nothing_else_is() -> None:
    texts = (b"[0]<stdout>:rehearsal step 7 size 2", b"[0]<stdout>:step 8", b"world of 2")
    lines = [parse_line(b"1970-01-01T00:00:01.500000000Z " + text, "pod") for text in texts]
    assert told_steps(lines) == steps((7, 2, 1.5))


def test_a_job_that_never_changes_has_no_pause() -> None:
    assert longest_pause(steps((1, 2, 0.0), (2, 2, 9.0))) == 0.0


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, ""),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, "a is not Ready"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]},
            "a is not placed: 0/2 nodes",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "a waits: ErrImagePull",
        ),
        ({"phase": "Failed", "reason": "OutOfmemory"}, "a has failed: OutOfmemory"),
    ],
)
def test_what_stands_in_the_way(status: Json, said: str) -> None:
    assert trouble_of([{"metadata": {"name": "a"}, "status": status}]) == said


def test_no_pods_at_all_are_trouble() -> None:
    assert "no pod was made" in trouble_of([])


@pytest.mark.parametrize(("gpus", "held"), [("1k", 1000), ("1e3", 1000), ("1e99", 1), ("-1", 1)])
def test_a_strangers_pod_holds_its_node_whatever_it_asks_for(gpus: str, held: int) -> None:
    pod = holder("odd", on="a")
    pod["spec"]["containers"][0]["resources"]["limits"][GPU] = gpus
    assert list(gpus_held([pod], GPU)["a"].values()) == [held]
