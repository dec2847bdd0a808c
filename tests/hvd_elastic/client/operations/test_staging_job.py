"""A data set is staged apart from its job."""

import pytest

from hvd_elastic.client.operations.deletion import plan_deletion
from hvd_elastic.client.operations.staging_job import StageFailedError, begin_stage, wait_for_stage
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from testbed.kube_api import JOBS
from tests.hvd_elastic.client.operations.jobs_cluster import CLAIMS, DESCRIPTION, POLICIES, JobsCluster

BATCH = "/apis/batch/v1/namespaces/default/jobs"
STAGED = DESCRIPTION + "data: {size: 1Ti, storage_class: nfs}\nstage: s3://bucket/%s\n"
SPEC = read_job(STAGED % "set")
(NAME,) = (one["metadata"]["name"] for one in render(SPEC) if one["kind"] == "Job")


def never(_seconds: float) -> None:
    raise AssertionError("nothing to wait for")


@pytest.fixture(autouse=True)
def _serves_jobs(cluster: JobsCluster) -> None:
    cluster.objects.setdefault(BATCH, {})


def end(cluster: JobsCluster, condition: str) -> None:
    for name in cluster.objects[BATCH]:
        cluster.patch(BATCH, name, {"status": {"conditions": [{"type": condition, "status": "True"}]}})


def test_storage_and_copy_and_no_job(cluster: JobsCluster) -> None:
    assert begin_stage(cluster.client(), SPEC, sleep=never).begun
    assert list(cluster.objects[CLAIMS]) == ["bert-data"]
    assert list(cluster.objects[BATCH]) == [NAME]
    assert list(cluster.objects[POLICIES]) == ["bert.stage"]
    assert not cluster.objects.get(JOBS)


def test_one_that_runs_is_left_alone_and_one_that_has_ended_begins_again(cluster: JobsCluster) -> None:
    begin_stage(cluster.client(), SPEC, sleep=never)
    assert not begin_stage(cluster.client(), SPEC, sleep=never).begun
    end(cluster, "Failed")
    assert begin_stage(cluster.client(), SPEC, sleep=never).begun
    assert "status" not in cluster.objects[BATCH][NAME]


def test_one_of_an_older_description_is_removed_even_while_it_runs(cluster: JobsCluster) -> None:
    begin_stage(cluster.client(), SPEC, sleep=never)
    done = begin_stage(cluster.client(), read_job(STAGED % "other"), sleep=never)
    assert done.begun
    assert list(cluster.objects[BATCH]) == [done.name] != [NAME]


def test_the_data_of_a_job_that_trains_is_not_replaced(cluster: JobsCluster) -> None:
    submit(cluster.client(), SPEC)
    cluster.annotate(begun="true")
    begin_stage(cluster.client(), SPEC, sleep=never)
    with pytest.raises(JobStateError, match="bert trains"):
        begin_stage(cluster.client(), read_job(STAGED % "other"), sleep=never)
    assert list(cluster.objects[BATCH]) == [NAME]


def test_the_end_is_awaited(cluster: JobsCluster) -> None:
    begin_stage(cluster.client(), SPEC, sleep=never)
    wait_for_stage(cluster.client(), SPEC, sleep=lambda _: end(cluster, "Complete"))
    end(cluster, "Failed")
    with pytest.raises(StageFailedError, match="kubectl logs"):
        wait_for_stage(cluster.client(), SPEC, sleep=never)


def test_it_goes_with_its_job(cluster: JobsCluster) -> None:
    begin_stage(cluster.client(), SPEC, sleep=never)
    parts = {str(part) for part in plan_deletion(cluster.client(), "bert").beside}
    assert parts == {f"job/{NAME}", "networkpolicy/bert.stage"}


def test_a_job_without_stage_is_refused(cluster: JobsCluster) -> None:
    with pytest.raises(InvalidInputError, match="stage"):
        begin_stage(cluster.client(), read_job(DESCRIPTION), sleep=never)
    assert not cluster.written()
