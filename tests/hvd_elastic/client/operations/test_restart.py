"""A job that goes on gets a new launcher; one that has ended is made again."""

import pytest

from hvd_elastic.client.operations.restart import plan_restart, restart
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE
from testbed.kube_api import JOBS, PODS, Json
from tests.hvd_elastic.client.operations.jobs_cluster import ACCOUNTS, CLAIMS, JobsCluster, named, spec

CHECKPOINT = "s3://bucket/jobs"


def launcher(name: str, phase: str = "Running") -> Json:
    labels = {LABEL_JOB_NAME: "bert", LABEL_JOB_ROLE: "launcher"}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": {"phase": phase}}


def never(_seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_a_job_that_goes_on_gets_a_new_launcher(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec(checkpoint=CHECKPOINT))
    cluster.annotate(begun="true")
    cluster.put(PODS, launcher("bert-launcher-a", "Failed"))
    cluster.put(PODS, launcher("bert-launcher-b"))
    plan = plan_restart(cluster.client(), "bert")
    assert plan.loss == ""
    restart(cluster.client(), plan, sleep=never)
    assert list(cluster.objects[PODS]) == ["bert-launcher-a"]
    assert "bert" in cluster.objects[JOBS]


def test_what_is_lost_without_a_checkpoint(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.put(PODS, launcher("bert-launcher-b"))
    assert plan_restart(cluster.client(), "bert").loss == "", "nobody has trained yet"
    cluster.annotate(begun="true")
    assert "since the job's start" in plan_restart(cluster.client(), "bert").loss


def test_a_job_that_has_ended_is_made_again(cluster: JobsCluster) -> None:
    """What stands beside it is taken from the old launcher's Job first, so that nobody collects it later."""
    submit(cluster.client(), spec(checkpoint=CHECKPOINT, suspend=True))
    cluster.annotate(begun="true", wanted_workers="2")
    cluster.change_job(spec={"runPolicy": {"suspend": False}}, status={"completionTime": "2026-01-01T00:00:00Z"})
    owner = [{"kind": "Job", "name": "bert-launcher", "uid": "old"}]
    cluster.patch(ACCOUNTS, "bert-discovery", {"metadata": {"ownerReferences": owner}})
    cluster.put(CLAIMS, named("bert-output"))
    uid = cluster.job()["metadata"]["uid"]
    restart(cluster.client(), plan_restart(cluster.client(), "bert"), sleep=never)
    again = cluster.job()
    assert again["metadata"]["uid"] != uid
    assert set(again["metadata"]["annotations"]) == {"hvd-elastic.dev/job"}
    assert "suspend" not in again["spec"]["runPolicy"]
    assert again["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4
    assert "ownerReferences" not in cluster.objects[ACCOUNTS]["bert-discovery"]["metadata"]
    written = cluster.written()
    assert written.index(f"PATCH {ACCOUNTS}/bert-discovery", 6) < written.index(f"DELETE {JOBS}/bert")


def test_jobs_that_need_no_restart(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    with pytest.raises(JobStateError, match="no launcher at the moment"):
        plan_restart(cluster.client(), "bert")
    cluster.change_job(spec={"runPolicy": {"suspend": True}})
    with pytest.raises(JobStateError, match="hvd-elastic resume bert"):
        plan_restart(cluster.client(), "bert")
    cluster.change_job(
        status={"completionTime": "2026-01-01T00:00:00Z"}, metadata={"annotations": {"hvd-elastic.dev/job": "{}"}}
    )
    with pytest.raises(JobStateError, match="another release"):
        plan_restart(cluster.client(), "bert")
