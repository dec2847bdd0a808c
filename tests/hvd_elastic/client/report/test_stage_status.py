"""The data set that a job waits for, as `status` tells of it."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.report.job_status import status
from hvd_elastic.client.report.stage_status import (
    StageFacts,
    StagePhase,
    newest,
    stage_line,
    stage_status,
    wanted_stage,
)
from hvd_elastic.client.report.status_text import status_text
from hvd_elastic.mpijob.contract import ANNOTATION_BEGUN, ANNOTATION_SPEC
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.staging.progress_line import StageProgress, progress_words
from testbed.kube_api import JOBS, PODS, KubeApi, Request, Status
from tests.hvd_elastic.client.report.objects import (
    LAUNCHER_JOBS,
    condition,
    launcher,
    mpijob,
    pod,
    stamp,
    unschedulable,
)

Json = dict[str, Any]

SOURCE = "s3://bucket/set"
HALF = progress_words(StageProgress(objects=1, of_objects=2, size_bytes=1 << 30, of_bytes=3 << 30))
WHOLE = progress_words(StageProgress(objects=2, of_objects=2, size_bytes=3 << 30, of_bytes=3 << 30))


def staging_pod(name: str = "train-stage-x", *, made: float = 0.0, **fields: Any) -> Json:
    found = pod(name, role="", **fields)
    found["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "train-stage-1"}
    found["metadata"]["creationTimestamp"] = stamp(made)
    return found


def staging_job(*conditions: Json) -> Json:
    labels = {"hvd-elastic.dev/stage": "train"}
    return {
        "metadata": {"name": "train-stage-1", "namespace": "default", "labels": labels},
        "status": {"conditions": list(conditions)},
    }


def facts(**fields: Any) -> StageFacts:
    given: dict[str, Any] = {"source": SOURCE, "rearranges": False, "job": staging_job(), "pod": staging_pod()}
    return StageFacts(**{**given, **fields})


def staged_mpijob(*, begun: bool = False, **stage: Any) -> Json:
    found = mpijob()
    spec = read_job(
        None,
        {"name": "train", "image": "i", "command": ["c"], "data": "d", "stage": {"source": SOURCE, **stage}},
    )
    found["metadata"]["annotations"] = {ANNOTATION_SPEC: spec.as_json()}
    if begun:
        found["metadata"]["annotations"][ANNOTATION_BEGUN] = "true"
    return found


@pytest.mark.parametrize(
    ("given", "phase", "numbers", "said"),
    [
        ({"log": (f"x: {HALF}, 33%",)}, StagePhase.COPYING, (1, 2, 1 << 30, 3 << 30), "1 of 2 objects, 1.00 of 3.00"),
        ({}, StagePhase.COPYING, (-1, -1, -1, -1), ""),
        ({"log": (WHOLE, "rows: 5"), "rearranges": True}, StagePhase.REARRANGING, (2, 2, 3 << 30, 3 << 30), "2 of 2"),
        ({"log": (HALF,), "rearranges": True}, StagePhase.COPYING, (1, 2, 1 << 30, 3 << 30), "1 of 2"),
        ({"pod": None}, StagePhase.WAITING, (-1, -1, -1, -1), "its pod is not made yet"),
        ({"pod": staging_pod(phase="Pending")}, StagePhase.WAITING, (-1, -1, -1, -1), "its pod is starting"),
        ({"pod": unschedulable("x", "0/2 nodes")}, StagePhase.WAITING, (-1, -1, -1, -1), "pending: 0/2 nodes"),
        ({"pod": staging_pod(phase="Failed")}, StagePhase.WAITING, (-1, -1, -1, -1), "next pod"),
        (
            {"job": staging_job(condition("Failed", "BackoffLimitExceeded")), "log": (HALF,)},
            StagePhase.FAILED,
            (1, 2, 1 << 30, 3 << 30),
            "BackoffLimitExceeded",
        ),
    ],
)
def test_each_phase(given: Json, phase: StagePhase, numbers: tuple[int, ...], said: str) -> None:
    found = stage_status(facts(**given))
    assert found is not None
    assert (found.phase, found.source) == (phase, SOURCE)
    assert (found.objects, found.of_objects, found.size_bytes, found.of_bytes) == numbers
    assert said in found.words
    assert stage_line(found).startswith(f"data set {SOURCE}: {phase}")
    assert "training waits for it" in stage_line(found)


def test_a_data_set_that_is_whole_is_waited_for_no_longer() -> None:
    assert stage_status(None) is None
    assert stage_status(facts(job=staging_job(condition("Complete")))) is None


def test_which_jobs_wait_for_one() -> None:
    assert wanted_stage(staged_mpijob()) == (SOURCE, False)
    assert wanted_stage(staged_mpijob(rearrange=["sort"])) == (SOURCE, True)
    assert wanted_stage(staged_mpijob(begun=True)) is None
    assert wanted_stage(mpijob()) is None
    other = mpijob()
    for text in ("", "[]", json.dumps({"stage": {}}), json.dumps({"stage": "s3://b"})):
        other["metadata"]["annotations"] = {ANNOTATION_SPEC: text}
        assert wanted_stage(other) is None


def test_the_newest_pod_counts() -> None:
    pods = [staging_pod("a", made=1.0), staging_pod("c", made=9.0), staging_pod("b", made=5.0)]
    assert newest(pods) is pods[1]
    assert newest([]) is None


def log_of(lines: Iterable[bytes], asked: list[Request]) -> Callable[[Request], Iterable[bytes]]:
    def answer(request: Request) -> Iterable[bytes]:
        asked.append(request)
        return lines

    return answer


@pytest.fixture
def staging(served: KubeApi) -> KubeApi:
    served.put(JOBS, staged_mpijob())
    served.put(LAUNCHER_JOBS, staging_job())
    served.put(PODS, staging_pod())
    served.put(PODS, launcher(phase="Pending"))
    return served


def test_status_reads_the_log_of_the_staging_pod(staging: KubeApi, cluster: ClusterClient) -> None:
    asked: list[Request] = []
    lines = [b"begins\n", f"{SOURCE}: {HALF}, 33%\n".encode()]
    staging.streams[f"{PODS}/train-stage-x/log"] = log_of(lines, asked)
    found = status(cluster, "train")
    assert found.stage is not None
    assert (found.stage.objects, found.stage.of_objects) == (1, 2)
    assert f"  data set {SOURCE}: copying, {HALF}; training waits for it\n" in status_text(found)
    assert asked[0].query["container"] == "stage"
    assert found.state == "starting"


def test_a_log_that_may_not_be_read_is_noted(staging: KubeApi, cluster: ClusterClient) -> None:
    def closed(request: Request) -> None:
        if request.path.endswith("/log"):
            raise Status(403)

    staging.fault = closed
    found = status(cluster, "train")
    assert found.stage is not None
    assert (found.stage.phase, found.stage.objects) == (StagePhase.COPYING, -1)
    assert any("injected" in note for note in found.notes)


def test_a_container_that_has_not_started_has_no_log(staging: KubeApi, cluster: ClusterClient) -> None:
    def too_soon(request: Request) -> None:
        if request.path.endswith("/log"):
            raise Status(400)

    staging.fault = too_soon
    found = status(cluster, "train")
    assert found.stage is not None
    assert found.stage.phase is StagePhase.COPYING


def test_a_job_that_has_trained_asks_nothing_of_its_staging(staging: KubeApi, cluster: ClusterClient) -> None:
    staging.put(JOBS, staged_mpijob(begun=True))
    assert status(cluster, "train").stage is None
    assert not any("hvd-elastic.dev/stage" in str(request.query) for request in staging.requests)


def test_the_newest_copy_counts(staging: KubeApi, cluster: ClusterClient) -> None:
    older = staging_job(condition("Failed", "BackoffLimitExceeded"))
    older["metadata"].update(name="train-stage-0", creationTimestamp=stamp(1.0))
    staging.put(LAUNCHER_JOBS, older)
    newer = staging_job()
    newer["metadata"]["creationTimestamp"] = stamp(2.0)
    staging.put(LAUNCHER_JOBS, newer)
    found = status(cluster, "train")
    assert found.stage is not None
    assert found.stage.phase is StagePhase.COPYING
