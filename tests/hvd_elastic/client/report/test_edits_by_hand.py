"""What `status` says of a job that somebody has edited: replicas, labels and finalizers."""

from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.report.job_status import job_status, status
from hvd_elastic.client.report.status_text import status_text
from hvd_elastic.client.report.worker_status import WorkerPodState, worker_statuses
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE
from testbed.kube_api import JOBS, PODS, KubeApi
from tests.hvd_elastic.client.report.objects import CONFIG_MAPS, NOW, condition, facts, ledger_map, live, mpijob, pod


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        (9, "asks for 9 workers: no more than 8 train; hvd-elastic scale train N sets another"),
        (8, ""),
        (1, ""),
        (0, "asks for 0 workers: the operator refuses that, and makes and deletes nothing; hvd-elastic scale"),
    ],
)
def test_replicas_that_scale_would_not_have_set(replicas: int, said: str) -> None:
    text = status_text(job_status(facts(job=mpijob(status=live(), replicas=replicas))))
    assert (f"  note: the MPIJob {said}" in text) == bool(said)
    over = mpijob(status=live(), replicas=replicas, conditions=[condition("Succeeded")], ended=NOW - 5)
    assert "note: the MPIJob" not in status_text(job_status(facts(job=over)))


def test_fewer_replicas_than_the_min_workers() -> None:
    job = mpijob(status=live(), replicas=1)
    job["metadata"]["annotations"]["hvd-elastic.dev/job"] = '{"workers": {"min": 2, "max": 4}}'
    note, *_ = job_status(facts(job=job)).notes  # and that the operator has not deleted the others yet
    assert note.startswith("the MPIJob asks for 1 worker: fewer than 2 do not train; ")


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_finalizer_that_holds_a_pod_is_named_once_the_grace_is_over(phase: str) -> None:
    held = pod("train-worker-2", phase=phase, deleting=True, finalizers=["team/keep"])
    said = "its pod stays until its finalizers are removed: team/keep"
    assert worker_statuses(facts(pods=(held,)))[2].why.endswith(f"; {said}")
    assert said not in worker_statuses(facts(pods=(held,), now=NOW - 1))[2].why
    assert said not in worker_statuses(facts(pods=(pod("train-worker-2", finalizers=["team/keep"]),)))[2].why


@pytest.mark.parametrize("label", [LABEL_JOB_NAME, LABEL_JOB_ROLE])
@pytest.mark.parametrize("owner", ["uid-train", "another"])
def test_a_pod_without_its_label_is_no_missing_one(
    served: KubeApi, cluster: ClusterClient, label: str, owner: str
) -> None:
    served.put(JOBS, mpijob(status=live()))
    served.put(CONFIG_MAPS, ledger_map())
    edited: dict[str, Any] = pod("train-worker-1")
    edited["metadata"]["ownerReferences"] = [{"kind": "MPIJob", "uid": owner, "controller": True}]
    del edited["metadata"]["labels"][label]
    for each in (pod("train-worker-0"), edited):
        served.put(PODS, each)
    one, two = status(cluster, "train").workers[1:]
    assert two.state is WorkerPodState.ABSENT
    if owner == "another":
        assert one.state is WorkerPodState.ABSENT
    else:
        assert one.state is WorkerPodState.READY
        assert (
            one.why
            == f"its pod has no label {label} any more, so the job does not use it: add it again, or delete the pod"
        )


@pytest.mark.parametrize("owners", [[], [{"kind": "MPIJob", "uid": "uid-of-an-earlier-one", "controller": True}]])
@pytest.mark.parametrize("name", ["train-worker-impostor", "train-worker-1"])
def test_a_stranger_with_the_labels_of_a_worker_is_none(
    served: KubeApi, cluster: ClusterClient, name: str, owners: list[Any]
) -> None:
    served.put(JOBS, mpijob(status=live(), replicas=2))
    served.put(CONFIG_MAPS, ledger_map())
    stranger: dict[str, Any] = pod(name)
    stranger["metadata"]["ownerReferences"] = owners
    for each in (pod("train-worker-0"), stranger):
        served.put(PODS, each)
    found = status(cluster, "train").workers
    assert [one.pod for one in found] == ["train-worker-0", "train-worker-1"]
    assert found[1].state is WorkerPodState.ABSENT
