"""TensorBoard of a job: made, made again, removed, and refused where there is nothing to show."""

import pytest

from hvd_elastic.client.connection.cluster_errors import RefusedError
from hvd_elastic.client.job_lookup import UnknownJobError
from hvd_elastic.client.operations.deletion import delete, plan_deletion
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.client.operations.tensorboard import (
    ForeignObjectError,
    TensorBoard,
    apply_tensorboard,
    delete_tensorboard,
    plan_tensorboard,
)
from testbed.kube_api import JOBS, Json, Request, Status
from tests.hvd_elastic.client.operations.jobs_cluster import (
    CLAIMS,
    DEPLOYMENTS,
    DRIVERS,
    POLICIES,
    JobsCluster,
    named,
    refuse,
    spec,
)


def claim(*modes: str) -> Json:
    return named("results", spec={"accessModes": list(modes)})


@pytest.fixture(autouse=True)
def _job(cluster: JobsCluster) -> None:
    cluster.put(CLAIMS, claim("ReadWriteMany"))
    submit(cluster.client(), spec(output="results"))
    cluster.requests.clear()


def apply(cluster: JobsCluster, **options: str) -> TensorBoard:
    return apply_tensorboard(cluster.client(), plan_tensorboard(cluster.client(), "bert", **options))


def changes(board: TensorBoard) -> list[str]:
    return [f"{one.name} {one.change}" for one in board.objects]


def test_it_is_made_once_and_stays_as_it_is(cluster: JobsCluster) -> None:
    first, again = apply(cluster), apply(cluster)
    assert changes(first) == ["networkpolicy/bert.tensorboard created", "deployment/bert-tensorboard created"]
    assert {one.change for one in again.objects} == {"unchanged"}
    pod = cluster.objects[DEPLOYMENTS]["bert-tensorboard"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "train:1"
    assert first.folder == "/output/default/bert/tensorboard"
    assert {request.query.get("fieldManager") for request in cluster.requests if request.method == "PATCH"} == {
        "hvd-elastic"
    }


def test_another_image_changes_it(cluster: JobsCluster) -> None:
    apply(cluster)
    assert changes(apply(cluster, image="board:2"))[-1] == "deployment/bert-tensorboard configured"


def test_planning_writes_nothing(cluster: JobsCluster) -> None:
    plan = plan_tensorboard(cluster.client(), "bert")
    apply_tensorboard(cluster.client(), plan, dry_run=True)
    assert cluster.written() == []


def test_nothing_is_written_unless_all_is_accepted(cluster: JobsCluster) -> None:
    cluster.fault = refuse("Deployment", 422, field="spec", message="too much")
    with pytest.raises(RefusedError):
        apply(cluster)
    assert cluster.written() == []


def test_it_goes_with_the_job(cluster: JobsCluster) -> None:
    board = apply(cluster)
    owners = [one.after["metadata"]["ownerReferences"] for one in board.objects]
    uid = cluster.job()["metadata"]["uid"]
    assert owners == [[{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "bert", "uid": uid}]] * 2
    plan = plan_deletion(cluster.client(), "bert")
    gone = delete(cluster.client(), plan, volumes=False, sleep=lambda _: None)
    assert {"deployment/bert-tensorboard", "networkpolicy/bert.tensorboard"} <= {str(part) for part in gone}


def test_deleting_it_deletes_nothing_else(cluster: JobsCluster) -> None:
    before = {path: dict(things) for path, things in cluster.objects.items()}
    apply(cluster)
    rehearsed = delete_tensorboard(cluster.client(), "bert", dry_run=True)
    assert list(cluster.objects[DEPLOYMENTS]) == ["bert-tensorboard"]
    gone = delete_tensorboard(cluster.client(), "bert")
    assert [one["kind"] for one in gone] == [one["kind"] for one in rehearsed] == ["Deployment", "NetworkPolicy"]
    assert cluster.objects == before
    assert delete_tensorboard(cluster.client(), "bert") == []


def test_what_is_left_of_it_can_be_deleted_without_its_job(cluster: JobsCluster) -> None:
    apply(cluster)
    cluster.remove(JOBS, "bert")
    assert len(delete_tensorboard(cluster.client(), "bert")) == 2
    with pytest.raises(UnknownJobError):
        delete_tensorboard(cluster.client(), "bert")


def test_a_deployment_of_somebody_else_is_left_alone(cluster: JobsCluster) -> None:
    cluster.put(DEPLOYMENTS, named("bert-tensorboard"))
    for act in (apply, lambda one: delete_tensorboard(one.client(), "bert")):
        with pytest.raises(ForeignObjectError, match="left alone") as error:
            act(cluster)
        assert error.value.exit_code == 2
    assert cluster.written() == []


def test_a_job_without_output_is_told_what_to_do(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec(name="plain"))
    with pytest.raises(JobStateError, match=r"plain has no output.*`output: CLAIM`") as error:
        plan_tensorboard(cluster.client(), "plain")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("url", "driver", "claim"),
    [
        ("gs://team/results", "gcsfuse.csi.storage.gke.io", None),
        ("s3://team/results", "s3.csi.aws.com", "vision-output"),
    ],
)
def test_a_bucket_is_shown_by_way_of_its_driver(cluster: JobsCluster, url: str, driver: str, claim: str | None) -> None:
    cluster.put(DRIVERS, named(driver))
    submit(cluster.client(), spec(name="vision", output=url))
    cluster.requests.clear()
    plan = plan_tensorboard(cluster.client(), "vision")
    assert (plan.claim, plan.one_node) == (claim, False)
    assert [request.path for request in cluster.requests if "claims" in request.path] == (
        [f"{CLAIMS}/{claim}"] if claim else []
    )
    mounted = plan.objects[-1].after["spec"]["template"]["spec"]["volumes"][0]
    assert mounted["csi"]["driver"] == driver if claim is None else mounted["persistentVolumeClaim"]["readOnly"]
    assert plan.folder == "/output/default/vision/tensorboard"


@pytest.mark.parametrize(
    ("modes", "one_node"),
    [
        (["ReadWriteMany"], False),
        (["ReadWriteOnce", "ReadOnlyMany"], False),
        (["ReadWriteOnce"], True),
    ],
)
def test_the_access_mode_decides_where_it_runs(cluster: JobsCluster, modes: list[str], one_node: bool) -> None:
    cluster.put(CLAIMS, claim(*modes))
    plan = plan_tensorboard(cluster.client(), "bert")
    assert plan.one_node is one_node
    assert ("podAffinity" in str(plan.objects[-1].after)) is one_node


def test_a_claim_that_one_pod_has_or_that_is_not_there_is_refused(cluster: JobsCluster) -> None:
    cluster.put(CLAIMS, claim("ReadWriteOncePod"))
    with pytest.raises(JobStateError, match="no second pod may"):
        plan_tensorboard(cluster.client(), "bert")
    cluster.remove(CLAIMS, "results")
    with pytest.raises(JobStateError, match="there is no claim results"):
        plan_tensorboard(cluster.client(), "bert")


def test_who_may_not_read_claims_gets_it_all_the_same(cluster: JobsCluster) -> None:
    def closed(request: Request) -> None:
        if request.path.startswith(CLAIMS):
            raise Status(403)

    cluster.fault = closed
    assert changes(apply(cluster))[-1] == "deployment/bert-tensorboard created"
    assert "bert.tensorboard" in cluster.objects[POLICIES]
