"""What a submitted job waits for, until it trains."""

from collections.abc import Iterator

import pytest

from hvd_elastic.client.operations.first_step import JobFailedError, StartProgress, wait_for_first_step
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from testbed.kube_api import JOBS, PODS, pod
from tests.hvd_elastic.client.operations.jobs_cluster import JobsCluster, spec


def unscheduled() -> dict[str, object]:
    made = pod(1, job="bert", phase="Pending", ready=False, ip="", node="")
    made["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "message": "0/3 nodes are available:\n3 Insufficient nvidia.com/gpu",
        }
    ]
    return made


def test_the_way_to_the_first_step(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    told: list[StartProgress] = []
    status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=1, step=3)

    def happens() -> Iterator[object]:
        yield cluster.put(PODS, unscheduled())
        yield cluster.put(PODS, pod(0, job="bert"))
        yield "nothing"
        cluster.annotate(status=status.to_json())
        yield "trains"

    course = happens()

    def sleep(_seconds: float) -> None:
        next(course)

    wait_for_first_step(cluster.client(), "bert", report=told.append, sleep=sleep)
    assert [str(one) for one in told] == [
        "0 of 0 workers run, launcher to come",
        "0 of 1 workers run, launcher to come; bert-worker-1: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
        "1 of 2 workers run, launcher to come; bert-worker-1: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
        "trains, step 3",
    ]


def test_an_image_that_cannot_be_pulled(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    made = pod(0, job="bert", phase="Pending", ready=False, ip="")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    made["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
    cluster.put(PODS, made)
    told: list[str] = []

    def end(_seconds: float) -> None:
        cluster.annotate(begun="true")

    wait_for_first_step(cluster.client(), "bert", report=lambda one: told.append(str(one)), sleep=end)
    assert "bert-worker-0: ImagePullBackOff Back-off pulling image" in told[0]
    assert told[-1] == "trains"


def test_a_job_that_never_trains(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec(suspend=True))
    with pytest.raises(JobStateError, match="hvd-elastic resume bert"):
        wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=lambda _seconds: None)
    cluster.change_job(spec={"runPolicy": {"suspend": False}}, status={"completionTime": "2026-01-01T00:00:00Z"})
    with pytest.raises(JobFailedError, match="failed before its first step"):
        wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=lambda _seconds: None)
    cluster.remove(JOBS, "bert")
    with pytest.raises(JobFailedError, match="was deleted"):
        wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=lambda _seconds: None)
