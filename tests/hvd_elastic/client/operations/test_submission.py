"""Nothing is written unless all of a job is accepted, and what was decided since stays decided."""

import re

import pytest

from hvd_elastic.client.connection.cluster_errors import ForbiddenError
from hvd_elastic.client.job_lookup import ForeignJobError
from hvd_elastic.client.operations.prerequisites import NotReadyError
from hvd_elastic.client.operations.submission import NotAppliedError, submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.discovery.kube.node_exclusion import excluding
from hvd_elastic.mpijob.manifests.render import render
from testbed.kube_api import JOBS, PODS, Json, Request, Status, mpijob
from tests.hvd_elastic.client.operations.jobs_cluster import (
    ACCOUNTS,
    BINDINGS,
    CLASSES,
    DRIVERS,
    MAPS,
    NAMESPACES,
    POLICIES,
    ROLES,
    JobsCluster,
    named,
    refuse,
    spec,
)


def test_everything_is_applied_in_the_order_of_the_manifests(cluster: JobsCluster) -> None:
    done = submit(cluster.client(), spec())
    assert [one.name for one in done.objects] == [
        f"{one['kind'].lower()}/{one['metadata']['name']}" for one in render(spec())
    ]
    assert {one.change for one in done.objects} == {"created"}
    assert [line.split("/")[-2] for line in cluster.written()] == [
        path.split("/")[-1] for path in (ACCOUNTS, ROLES, BINDINGS, POLICIES, POLICIES, MAPS, JOBS, ROLES, BINDINGS)
    ], "at the end the job, and what it owns by then"
    assert {request.query["fieldManager"] for request in cluster.requests if request.method == "PATCH"} == {
        "hvd-elastic"
    }


def test_the_same_again_changes_nothing(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    done = submit(cluster.client(), spec())
    assert {one.change for one in done.objects} == {"unchanged"}
    assert not any(one.diff for one in done.objects)


def _owners(cluster: JobsCluster, kind: str) -> list[tuple[str, str]]:
    meta = cluster.objects[kind]["bert-discovery"]["metadata"]
    return [(one["kind"], one["uid"]) for one in meta.get("ownerReferences", ())]


def test_the_rights_go_with_the_job(cluster: JobsCluster) -> None:
    """Another job of this name before it and a stranger own them, too."""
    submit(cluster.client(), spec())
    uid = cluster.job()["metadata"]["uid"]
    assert _owners(cluster, ROLES) == _owners(cluster, BINDINGS) == [("MPIJob", uid)]
    earlier = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "bert", "uid": "earlier"}
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "bert", "uid": "stranger"}
    cluster.patch(ROLES, "bert-discovery", {"metadata": {"ownerReferences": [earlier, stranger]}})
    written = len(cluster.written())
    done = submit(cluster.client(), spec())
    assert {one.change for one in done.objects} == {"unchanged"}
    assert _owners(cluster, ROLES) == [("ConfigMap", "stranger"), ("MPIJob", uid)]
    assert len(cluster.written()) - written == len(done.objects) + 1, "who is the owner already is not asked to be"


def test_who_may_set_no_owner_submits_all_the_same(cluster: JobsCluster) -> None:
    """As where the API server asks for the right to delete: they stay, and `delete` finds them."""

    def fault(request: Request) -> None:
        if request.method == "PATCH" and "ownerReferences" in (request.body or {}).get("metadata", {}):
            raise Status(403)

    cluster.fault = fault
    submit(cluster.client(), spec())
    assert cluster.job()
    assert _owners(cluster, ROLES) == _owners(cluster, BINDINGS) == []


def test_a_difference_is_shown_and_not_written(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.requests.clear()
    done = submit(cluster.client(), spec(image="train:2"), dry_run=True)
    assert [one.change for one in done.objects] == ["unchanged"] * 6 + ["configured"]
    assert "-            image: train:1\n+            image: train:2\n" in done.objects[-1].diff
    assert cluster.written() == []
    assert cluster.job()["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == "train:1"


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_the_sidecar_and_the_autoscaler_note_meanwhile_is_no_difference(
    cluster: JobsCluster, dry_run: bool
) -> None:
    submit(cluster.client(), spec())
    cluster.annotate(status="step 1", begun="true", autoscaler="grew")

    def note(request: Request) -> None:
        if request.method == "PATCH" and request.path.startswith(JOBS):
            cluster.annotate(status="step 2", autoscaler="shrank")

    cluster.fault = note
    done = submit(cluster.client(), spec(), dry_run=dry_run)
    assert cluster.job()["metadata"]["annotations"]["hvd-elastic.dev/status"] == "step 2"
    assert {one.change for one in done.objects} == {"unchanged"}
    assert not any(one.diff for one in done.objects)


def test_what_was_decided_since_stays(cluster: JobsCluster) -> None:
    """The number of workers of `scale`, and whether the job is suspended."""
    submit(cluster.client(), spec(suspend=True))
    cluster.change_job(
        metadata={"annotations": {"hvd-elastic.dev/wanted-workers": "2"}},
        spec={"runPolicy": {"suspend": False}, "mpiReplicaSpecs": {"Worker": {"replicas": 2}}},
    )
    submit(cluster.client(), spec(suspend=True, image="train:2"))
    assert cluster.job()["spec"]["runPolicy"]["suspend"] is False
    assert cluster.job()["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2


def test_a_job_keeps_off_the_nodes_that_it_kept_off(cluster: JobsCluster) -> None:
    """Else the API server refuses to apply its affinity, which another manager has changed."""
    placed = spec(node_labels={"pool": "a"})
    submit(cluster.client(), placed)
    template = cluster.job()["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    excluded = excluding(template["spec"]["affinity"], ["node-7"])
    cluster.annotate(excluded_nodes="node-7=2026-12-01T12:00:00Z")
    cluster.change_job(spec={"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"affinity": excluded}}}}})
    done = submit(cluster.client(), placed)
    assert {one.change for one in done.objects} == {"unchanged"}
    assert cluster.job()["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"] == excluded


def test_a_size_that_the_new_description_does_not_allow(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.annotate(wanted_workers="1")
    with pytest.raises(JobStateError, match="scaled to 1 workers, which is not within the new description's 2 to 4"):
        submit(cluster.client(), spec(workers="2:4"))
    cluster.annotate(wanted_workers="3")
    with pytest.raises(JobStateError, match="scaled to 3 workers, which is not within the new description's 2 or 4"):
        submit(cluster.client(), spec(workers="2:4", workers__sizes=[2, 4]))


def test_all_that_the_cluster_lacks_is_told_before_anything_is_written(cluster: JobsCluster) -> None:
    cluster.remove(NAMESPACES, "default")
    cluster.remove(CLASSES, "preserved-pc")
    cluster.remove("/apis", "kubeflow.org")
    with pytest.raises(NotReadyError) as caught:
        submit(cluster.client(), spec(monitor=True))
    lines = str(caught.value).splitlines()
    for line, said in zip(
        lines,
        ("kubectl create namespace default", "no CRD mpijobs.kubeflow.org", "PriorityClass preserved-pc", "PodMonitor"),
        strict=True,
    ):
        assert said in line
    assert "hvd-elastic priorityclasses | kubectl apply -f -" in lines[2]
    assert not any(request.method == "PATCH" for request in cluster.requests)


@pytest.mark.parametrize("version", ["v1.28.15", "v1.27.3-gke.100"])
def test_a_cluster_without_native_sidecars(cluster: JobsCluster, version: str) -> None:
    cluster.put("", named("version", gitVersion=version))
    with pytest.raises(NotReadyError, match=rf"Kubernetes {version}, which has no native sidecars: upgrade to 1\.29"):
        submit(cluster.client(), spec())
    assert not any(request.method == "PATCH" for request in cluster.requests)


@pytest.mark.parametrize(
    ("url", "driver", "way_out"),
    [
        ("s3://team/results", "s3.csi.aws.com", "add-on aws-mountpoint-s3-csi-driver"),
        ("gs://team/results", "gcsfuse.csi.storage.gke.io", "add-on GcsFuseCsiDriver"),
        ("https://team.blob.core.windows.net/results", "blob.csi.azure.com", "--enable-blob-driver"),
    ],
)
def test_a_bucket_for_results_needs_its_driver(cluster: JobsCluster, url: str, driver: str, way_out: str) -> None:
    with pytest.raises(NotReadyError, match=rf"no CSI driver {driver}.*{url}: .*{way_out}, or name a claim"):
        submit(cluster.client(), spec(output=url))
    assert not any(request.method == "PATCH" for request in cluster.requests)
    cluster.put(DRIVERS, named(driver))
    submit(cluster.client(), spec(output=url))
    assert "bert" in cluster.objects[JOBS]


def test_who_may_not_read_drivers_submits_all_the_same(cluster: JobsCluster) -> None:
    def closed(request: Request) -> None:
        if request.path.startswith(DRIVERS):
            raise Status(403)

    cluster.fault = closed
    submit(cluster.client(), spec(output="gs://team/results"))
    assert "bert" in cluster.objects[JOBS]


@pytest.mark.parametrize("version", ["v1.29.0", "v1.34.4+k3s1", "unknown"])
def test_a_cluster_that_has_them_or_does_not_say(cluster: JobsCluster, version: str) -> None:
    cluster.put("", named("version", gitVersion=version))
    submit(cluster.client(), spec())


def test_mpijobs_of_another_version(cluster: JobsCluster) -> None:
    cluster.put("/apis", named("kubeflow.org", versions=[{"groupVersion": "kubeflow.org/v1"}]))
    cluster.remove("/apis/kubeflow.org", "v2beta1")
    with pytest.raises(NotReadyError, match=r"are of kubeflow\.org/v1, not of kubeflow\.org/v2beta1"):
        submit(cluster.client(), spec())


def test_what_may_not_be_read_is_not_missing(cluster: JobsCluster) -> None:
    def only_in_the_namespace(request: Request) -> None:
        if request.path.startswith((CLASSES, NAMESPACES)) and "default/" not in request.path:
            raise Status(403)

    cluster.fault = only_in_the_namespace
    submit(cluster.client(), spec())
    assert "bert" in cluster.objects[JOBS]


def test_jobs_that_are_left_alone(cluster: JobsCluster) -> None:
    cluster.put(JOBS, mpijob("bert"))
    with pytest.raises(ForeignJobError, match="left alone"):
        submit(cluster.client(), spec())
    cluster.remove(JOBS, "bert")
    submit(cluster.client(), spec())
    cluster.change_job(status={"completionTime": "2026-01-01T00:00:00Z"})
    with pytest.raises(JobStateError, match="has failed: `hvd-elastic restart bert`"):
        submit(cluster.client(), spec())
    cluster.change_job(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    with pytest.raises(JobStateError, match="being deleted"):
        submit(cluster.client(), spec())


def test_a_job_whose_worker_was_evicted_goes_on(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.change_job(status={"conditions": [{"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}]})
    submit(cluster.client(), spec())


def test_another_managers_fields_are_named_with_their_owner(cluster: JobsCluster) -> None:
    cluster.fault = refuse(
        "MPIJob", 409, reason="FieldManagerConflict", field=".spec.slotsPerWorker",
        message='conflict with "ann" using kubeflow.org/v2beta1',
    )  # fmt: skip
    with pytest.raises(NotAppliedError) as caught:
        submit(cluster.client(), spec())
    assert str(caught.value) == "MPIJob bert: .spec.slotsPerWorker is ann's: --force-conflicts takes it over"
    assert cluster.written() == []
    cluster.fault = lambda request: None
    submit(cluster.client(), spec(), force=True)
    assert {request.query["force"] for request in cluster.requests if request.query.get("force")} == {"false", "true"}


def test_a_field_that_cannot_be_changed(cluster: JobsCluster) -> None:
    cluster.fault = refuse(
        "Role", 422, reason="FieldValueInvalid", field="spec", message="field is immutable\n@@ -6,11"
    )
    with pytest.raises(
        NotAppliedError, match="Role bert-discovery: spec: field is immutable: it cannot be changed"
    ) as told:
        submit(cluster.client(), spec())
    assert "@@" not in str(told.value)


def test_a_binding_to_a_role_that_is_not_there_yet_is_not_rehearsed(cluster: JobsCluster) -> None:
    """The API server would look for the role."""
    submit(cluster.client(), spec(), dry_run=True)
    assert not any(request.path.startswith(BINDINGS) for request in cluster.requests if request.method == "PATCH")


def test_all_rights_that_lack_are_told_before_anything_is_written(cluster: JobsCluster) -> None:
    def fault(request: Request) -> None:
        if request.method == "PATCH" and request.path.startswith((JOBS, ROLES)):
            raise Status(403)

    cluster.fault = fault
    with pytest.raises(ForbiddenError) as caught:
        submit(cluster.client(), spec())
    assert len(str(caught.value).splitlines()) == 2
    assert cluster.written() == []


def test_all_objects_that_may_not_be_read_are_told(cluster: JobsCluster) -> None:
    def fault(request: Request) -> None:
        if request.path.startswith((ACCOUNTS, POLICIES)):
            raise Status(403)

    cluster.fault = fault
    with pytest.raises(ForbiddenError) as caught:
        submit(cluster.client(), spec())
    assert len(str(caught.value).splitlines()) == 3


QUEUE = {"system": "kueue", "name": "research"}


def serve_kueue(cluster: JobsCluster, *fields: str) -> None:
    """Its ClusterQueues have these fields."""
    cluster.put("/apis", named("kueue.x-k8s.io", versions=[{"groupVersion": "kueue.x-k8s.io/v1beta2"}]))
    spec_of_queue: Json = {"properties": {"spec": {"properties": {field: {} for field in fields}}}}
    schemas = {"io.x-k8s.kueue.v1beta2.ClusterQueue": spec_of_queue}
    cluster.objects.setdefault("/openapi/v3/apis/kueue.x-k8s.io", {})
    cluster.put("/openapi/v3/apis/kueue.x-k8s.io", named("v1beta2", components={"schemas": schemas}))


def test_workers_are_queued_one_by_one_in_a_kueue_that_can(cluster: JobsCluster) -> None:
    with pytest.raises(NotReadyError, match="the cluster has no Kueue"):
        submit(cluster.client(), spec(queue=QUEUE))
    serve_kueue(cluster, "cohortName")
    with pytest.raises(NotReadyError, match=r"older than 0\.18.*set queue\.whole"):
        submit(cluster.client(), spec(queue=QUEUE))
    assert not any(request.method == "PATCH" for request in cluster.requests)
    submit(cluster.client(), spec(queue={**QUEUE, "whole": True}, checkpoint="s3://b/jobs"))
    serve_kueue(cluster, "cohortName", "concurrentAdmissionPolicy")
    submit(cluster.client(), spec(name="ernie", queue=QUEUE))


def test_a_floor_is_rehearsed_before_anything_is_written(cluster: JobsCluster) -> None:
    cluster.put(CLASSES, named("floor-pc"))
    wanted = {"min": 1, "max": 4, "gpus": 2, "floor": 2}
    answers: list[Json | Status] = []

    def rehearsed(request: Request) -> Json:
        assert request.body is not None
        assert request.query == {"dryRun": "All"}
        labels = request.body["metadata"]["labels"]
        assert (labels["hvd-elastic.dev/floor"], labels["training.kubeflow.org/replica-index"]) == ("2", "0")
        (container,) = request.body["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4", "a quota must hold the whole floor"
        answer = answers.pop()
        if isinstance(answer, Status):
            raise answer
        return answer

    cluster.answers[PODS] = rehearsed
    cluster.objects["/apis/admissionregistration.k8s.io"] = {}

    def serve(kind: str) -> None:
        policies = {"name": f"{kind}admissionpolicies"}
        cluster.put("/apis/admissionregistration.k8s.io", named("v1", resources=[policies]))

    for kind, answer, said in (
        ("mutating", {"spec": {"priorityClassName": "preemptible-pc"}}, "platform-kit kit --with floor"),
        ("validating", {"spec": {"priorityClassName": "preemptible-pc"}}, "v1.34.4, serves no MutatingAdmissionPolic"),
        ("mutating", Status(403, message="exceeded quota: floor-pc"), "there is no pod at all: exceeded quota"),
        ("validating", Status(403, message='u cannot create resource "pods" in API group ""'), "serves no Mutating"),
    ):
        serve(kind)
        answers.append(answer)
        with pytest.raises(NotReadyError, match=re.escape(said)):
            submit(cluster.client(), spec(workers=wanted))
    assert not any(request.method == "PATCH" for request in cluster.requests)
    serve("mutating")
    answers += [Status(403, message='u cannot create resource "pods" in API group ""')]
    submit(cluster.client(), spec(name="who-may-not-look", workers=wanted))
    answers += [{"spec": {"priorityClassName": "floor-pc"}}]
    submit(cluster.client(), spec(workers=wanted))
    submit(cluster.client(), spec(workers=wanted))  # its pods are there, and count in a quota
