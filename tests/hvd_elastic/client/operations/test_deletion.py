"""What goes with a job, what stays, and in which order."""

import pytest

from hvd_elastic.client.job_lookup import ForeignJobError, NoOperatorError, UnknownJobError
from hvd_elastic.client.operations.deletion import delete, plan_deletion
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, LABEL_PART_OF, MANAGED_BY
from testbed.kube_api import JOBS, Json, Request, Status, mpijob
from tests.hvd_elastic.client.operations.jobs_cluster import (
    ACCOUNTS,
    BINDINGS,
    CLAIMS,
    CLUSTER_ROLES,
    MAPS,
    ROLES,
    JobsCluster,
    spec,
)


def labelled(name: str, job: str = "bert", **more: str) -> Json:
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: job}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, **more}}


def never(_seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_volumes_stay_unless_asked_for(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.put(CLAIMS, labelled("bert-output", namespace="default"))
    cluster.put(MAPS, labelled("bert-ledger", namespace="default"))
    cluster.put(MAPS, labelled("other-ledger", job="other"))
    plan = plan_deletion(cluster.client(), "bert")
    assert [str(part) for part in plan.volumes] == ["persistentvolumeclaim/bert-output"]
    delete(cluster.client(), plan, volumes=False, sleep=never)
    assert list(cluster.objects[CLAIMS]) == ["bert-output"]
    assert list(cluster.objects[MAPS]) == ["other-ledger"]
    assert not cluster.objects[JOBS]
    assert not cluster.objects[ACCOUNTS]
    again = plan_deletion(cluster.client(), "bert")
    assert again.job is None
    delete(cluster.client(), again, volumes=True, sleep=never)
    assert not cluster.objects[CLAIMS]


def test_rights_that_were_only_applied_are_found_when_their_job_is_gone(cluster: JobsCluster) -> None:
    """`kubectl apply`, and later `kubectl delete mpijob`: nothing owns them."""
    submit(cluster.client(), spec())
    for kind in (ROLES, BINDINGS):
        cluster.patch(kind, "bert-discovery", {"metadata": {"ownerReferences": None}})
    cluster.remove(JOBS, "bert")
    plan = plan_deletion(cluster.client(), "bert")
    assert {"role/bert-discovery", "rolebinding/bert-discovery"} <= {str(part) for part in plan.beside}
    delete(cluster.client(), plan, volumes=False, sleep=never)
    assert not cluster.objects[ROLES]
    assert not cluster.objects[BINDINGS]


def test_the_job_goes_first_and_its_end_is_awaited(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.change_job(metadata={"finalizers": ["foregroundDeletion"]})
    waited: list[bool] = []

    def pods_are_gone(_seconds: float) -> None:
        waited.append("bert-discovery" in cluster.objects[ACCOUNTS])
        cluster.change_job(metadata={"finalizers": None})
        cluster.remove(JOBS, "bert")

    delete(cluster.client(), plan_deletion(cluster.client(), "bert"), volumes=False, sleep=pods_are_gone)
    assert waited == [True]
    first = next(request for request in cluster.requests if request.method == "DELETE")
    assert first.path == f"{JOBS}/bert"
    assert first.body is not None
    assert first.body["propagationPolicy"] == "Foreground"


def test_the_same_name_in_another_namespace_is_another_job(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.put(CLUSTER_ROLES, labelled("default.bert.node-reader"))
    cluster.put(CLUSTER_ROLES, labelled("team.bert.node-reader"))
    delete(cluster.client(), plan_deletion(cluster.client(), "bert"), volumes=False, sleep=never)
    assert list(cluster.objects[CLUSTER_ROLES]) == ["team.bert.node-reader"]


def test_what_may_not_be_read_is_left_out(cluster: JobsCluster) -> None:
    def fault(request: Request) -> None:
        if request.path == CLUSTER_ROLES:
            raise Status(403)

    submit(cluster.client(), spec())
    cluster.fault = fault
    assert plan_deletion(cluster.client(), "bert").job is not None


def test_jobs_that_are_not_there_or_not_ours(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    with pytest.raises(UnknownJobError, match=r"no job bret in namespace default: did you mean bert\?"):
        plan_deletion(cluster.client(), "bret")
    cluster.put(JOBS, mpijob("stranger"))
    with pytest.raises(ForeignJobError, match="left alone"):
        plan_deletion(cluster.client(), "stranger")
    cluster.objects.pop(JOBS)
    with pytest.raises(NoOperatorError, match="has no MPIJobs"):
        plan_deletion(cluster.client(), "bret")
