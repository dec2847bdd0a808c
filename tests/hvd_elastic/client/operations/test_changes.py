"""Suspend, resume and scale."""

import pytest

from hvd_elastic.client.operations.first_step import JobFailedError
from hvd_elastic.client.operations.scaling import Scaling, scale, scaling_of, wait_for_size
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError, find_submitted
from hvd_elastic.client.operations.suspension import resume, suspend
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from testbed.kube_api import JOBS
from tests.hvd_elastic.client.operations.jobs_cluster import JobsCluster, spec

WANTED = "hvd-elastic.dev/wanted-workers"


def test_suspended_and_resumed(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    assert suspend(cluster.client(), "bert").changed
    assert cluster.job()["spec"]["runPolicy"]["suspend"] is True
    assert not suspend(cluster.client(), "bert").changed
    assert resume(cluster.client(), "bert").changed
    assert cluster.job()["spec"]["runPolicy"]["suspend"] is False
    assert cluster.job()["spec"]["runPolicy"]["cleanPodPolicy"] == "All"


def test_kueue_alone_suspends_what_is_in_its_queue(cluster: JobsCluster) -> None:
    submit(
        cluster.client(), spec(queue={"system": "kueue", "name": "gpus", "whole": True}, checkpoint="s3://bucket/jobs")
    )
    with pytest.raises(JobStateError, match=r'queue gpus, and Kueue alone.*"active":false'):
        suspend(cluster.client(), "bert")
    assert "suspend" not in cluster.job()["spec"]["runPolicy"]


def test_the_sidecar_is_told_the_number(cluster: JobsCluster) -> None:
    """It drains those that go, and sets the replicas itself."""
    submit(cluster.client(), spec())
    assert scale(cluster.client(), "bert", 2).before == 4
    assert cluster.job()["metadata"]["annotations"][WANTED] == "2"
    assert cluster.job()["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4
    assert scale(cluster.client(), "bert", 3).before == 2


def test_in_a_queue_of_kueue_another_number_restarts_the_job(cluster: JobsCluster) -> None:
    submit(
        cluster.client(), spec(queue={"system": "kueue", "name": "gpus", "whole": True}, checkpoint="s3://bucket/jobs")
    )

    def restarts(workers: int) -> bool:
        return scaling_of(find_submitted(cluster.client(), "bert"), workers).restarts

    assert restarts(2)
    assert not restarts(4), "the number that it has"
    cluster.change_job(spec={"runPolicy": {"suspend": True}})
    assert not restarts(2), "it does not run"


def test_no_other_queue_restarts_it(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec(queue={"system": "volcano", "name": "gpus"}, checkpoint="s3://bucket/jobs"))
    assert not scaling_of(find_submitted(cluster.client(), "bert"), 2).restarts


def test_a_number_that_is_not_approved_is_not_asked_for(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    asked: list[int] = []

    def refuse(scaling: Scaling) -> None:
        asked.append(scaling.workers)
        raise PermissionError

    with pytest.raises(PermissionError):
        scale(cluster.client(), "bert", 2, approve=refuse)
    assert asked == [2]
    assert WANTED not in cluster.job()["metadata"]["annotations"]


@pytest.mark.parametrize("workers", [0, 5])
def test_a_number_outside_the_jobs_own(cluster: JobsCluster, workers: int) -> None:
    submit(cluster.client(), spec())
    with pytest.raises(JobStateError, match=f"bert may have 1 to 4 as its number of workers, so not {workers}"):
        scale(cluster.client(), "bert", workers)
    assert WANTED not in cluster.job()["metadata"]["annotations"]


def test_a_number_that_is_not_allowed(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec(workers__sizes=[1, 2, 4]))
    with pytest.raises(JobStateError, match="bert may have 1, 2 or 4 as its number of workers, so not 3"):
        scale(cluster.client(), "bert", 3)
    assert scale(cluster.client(), "bert", 2).workers == 2


def test_a_job_that_has_ended_is_not_changed(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.change_job(status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    with pytest.raises(JobStateError, match="has succeeded: hvd-elastic restart bert"):
        scale(cluster.client(), "bert", 2)
    with pytest.raises(JobStateError, match="has succeeded"):
        suspend(cluster.client(), "bert")


def test_waiting_for_a_size(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    told: list[str] = []

    def set_size(workers: int, *, replicas: int) -> None:
        status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=workers)
        cluster.annotate(status=status.to_json())
        cluster.change_job(spec={"mpiReplicaSpecs": {"Worker": {"replicas": replicas}}})

    set_size(4, replicas=4)
    happens = iter([(2, 4), (2, 2)])

    def sleep(_seconds: float) -> None:
        workers, replicas = next(happens)
        set_size(workers, replicas=replicas)

    wait_for_size(cluster.client(), "bert", 2, report=lambda one: told.append(str(one)), sleep=sleep)
    assert told == ["4 workers in training, 2 wanted", *["2 workers in training, 2 wanted"] * 2]
    cluster.change_job(status={"completionTime": "2026-01-01T00:00:00Z"})
    with pytest.raises(JobFailedError, match="has failed before it had 3 workers"):
        wait_for_size(cluster.client(), "bert", 3, report=lambda _one: None, sleep=sleep)


def test_another_job_of_the_same_name_is_left_alone(cluster: JobsCluster) -> None:
    """The change names the UID of the job that was looked at."""
    submit(cluster.client(), spec())
    uid = cluster.job()["metadata"]["uid"]
    suspend(cluster.client(), "bert")
    scale(cluster.client(), "bert", 2)
    changes = [request.body for request in cluster.requests if request.path.startswith(JOBS) and request.body]
    assert [body["metadata"]["uid"] for body in changes if "uid" in body["metadata"]] == [uid, uid]
