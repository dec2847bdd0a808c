"""Why a pod is not made: a quota, a limit, an admission policy, an operator that is away."""

from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.report.job_state import find_state
from hvd_elastic.client.report.job_status import job_status, status
from hvd_elastic.client.report.worker_status import NOT_KNOWN, WorkerPodState, WorkerStatus, worker_statuses
from hvd_elastic.discovery.ledger.entries import LauncherEnded
from testbed.kube_api import EVENTS, JOBS, PODS, KubeApi
from tests.hvd_elastic.client.report.objects import (
    CONFIG_MAPS,
    LAUNCHER_JOBS,
    LEDGER,
    NOW,
    condition,
    event,
    facts,
    launcher,
    ledger_map,
    live,
    mpijob,
    pod,
    preempted_event,
    stamp,
)

QUOTA = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=3"
LIMIT = "maximum cpu usage per Container is 2, but limit is 4"
POLICY = "ValidatingAdmissionPolicy 'gpus' denied request: no team"
THERE = (launcher(), pod("train-worker-0"), pod("train-worker-1"))


def refused(said: str, *, index: int = 2, unix: float = NOW - 12) -> dict[str, Any]:
    """As mpi-operator 0.8 writes it."""
    message = f'worker pod created failed: pods "train-worker-{index}" is forbidden: {said}'
    return event("train", "MPIJobFailed", message, unix=unix, component="mpi-job-controller")


def third(**fields: Any) -> WorkerStatus:
    return worker_statuses(facts(pods=THERE, **fields))[2]


@pytest.mark.parametrize("said", [QUOTA, LIMIT, POLICY])
def test_a_worker_that_may_not_be_made_says_why(said: str) -> None:
    two = third(events=(refused("long over", unix=NOW - 40), refused(said)))
    assert (two.state, two.why) == (WorkerPodState.ABSENT, f"the operator could not make it 12 s ago: {said}")
    assert two.before == "preempted by inference/web-1"


def test_a_worker_behind_one_that_may_not_be_made_names_that_one() -> None:
    two = worker_statuses(facts(pods=THERE[:2], events=(refused(QUOTA, index=1),)))[2]
    assert two.why.startswith('the operator could not make it 12 s ago: pods "train-worker-1" is forbidden: exceeded')


@pytest.mark.parametrize(
    "said",
    [
        refused(QUOTA, unix=NOW - 700),
        event("train", "MPIJobEvicted", "1/3 workers are evicted", unix=NOW - 12, component="mpi-job-controller"),
        event("train-worker-2", "FailedCreate", "of another object", unix=NOW - 12),
    ],
)
def test_an_event_of_something_else_is_no_reason(said: dict[str, Any]) -> None:
    assert third(events=(said,)).why == "the operator has made nothing for 10 min 05 s"


def test_an_operator_that_is_away_is_told_once_it_takes_longer_than_usual() -> None:
    assert third(now=NOW - 600).why == "preempted by inference/web-1"
    two = third(now=NOW - 605 + 70)
    assert (two.why, two.before) == ("the operator has made nothing for 1 min 10 s", "preempted by inference/web-1")


def test_a_worker_whose_end_nobody_has_told_was_there_when_the_sidecar_last_spoke() -> None:
    one = worker_statuses(facts(pods=THERE[:2], job=mpijob(status=live(unix=NOW - 20))))[1]
    assert one.why == f"the operator has made nothing for 20 s; {NOT_KNOWN}"
    assert worker_statuses(facts(pods=THERE[:2]))[1].why == NOT_KNOWN


def test_a_resume_that_the_operator_has_not_heard_of_is_told() -> None:
    resumed = mpijob(status=live(), conditions=[condition("Suspended")])
    assert third(job=resumed).why == "the operator has not made it since the job was resumed"


def test_a_launcher_that_is_not_made_says_why() -> None:
    def why(**fields: Any) -> str:
        return find_state(facts(job=mpijob(), pods=(), ledger=(), **fields)).why

    quota = event(
        "train", "MPIJobFailed", "launcher pod created failed: no", unix=NOW - 3, component="mpi-job-controller"
    )
    assert why() == "it has no launcher: the operator has made nothing for 1 h 00 min"
    assert why(now=NOW - 3595) == "it has no launcher"
    heard = find_state(facts(job=mpijob(status=live(unix=NOW - 70)), pods=(), ledger=()))
    assert heard.why == "it has no launcher: the operator has made nothing for 1 min 10 s"
    assert why(events=(quota,)) == "it has no launcher: the operator could not make it 3.0 s ago: no"
    made = {"metadata": {"uid": "j", "creationTimestamp": stamp(NOW - 100)}, "spec": {"suspend": True}}
    assert why(launcher_job=made).endswith("the operator has not resumed it since the job was resumed")
    pod_quota = event(
        "train-launcher", "FailedCreate", f"Error creating: {QUOTA}", unix=NOW - 5, component="job-controller"
    )
    said = why(launcher_job={**made, "spec": {}}, events=(pod_quota,))
    assert said == f"it has no launcher: the Job controller could not make it 5.0 s ago: {QUOTA}"


@pytest.mark.parametrize(
    ("ago", "failed", "next_try"),
    [
        (4.0, 1, "the next comes in 6.0 s"),
        (4.0, 3, "the next comes in 36 s"),
        (4.0, 30, "the next comes in 9 min 56 s"),
        (44.0, 3, "the next is due"),
    ],
)
def test_a_launcher_that_failed_is_told_with_its_last_line_and_when_the_next_comes(
    ago: float, failed: int, next_try: str
) -> None:
    ended = LauncherEnded(unix=NOW - ago, pod="l", uid="u", exit_code=2, reason="python: can't open file 'a.py'")
    job = {"metadata": {"uid": "j", "creationTimestamp": stamp(NOW - 900)}, "status": {"failed": failed}}
    found = find_state(facts(pods=(), ledger=(*LEDGER, ended), launcher_job=job))
    assert found.why == f"its launcher ended with exit code 2: python: can't open file 'a.py'; {next_try}"


def test_after_the_last_restart_no_launcher_follows() -> None:
    ended = LauncherEnded(unix=NOW - 4, pod="l", uid="u", exit_code=2)
    failed = [launcher(f"train-launcher-{number}", phase="Failed") for number in range(4)]
    job = {"metadata": {"uid": "j", "creationTimestamp": stamp(NOW - 900)}}
    found = find_state(facts(pods=failed, ledger=(*LEDGER, ended), launcher_job=job))
    assert found.why == "its launcher ended with exit code 2; no other follows: its restarts are used up"


def test_status_reads_few_events_and_only_while_a_pod_is_missing(served: KubeApi, cluster: ClusterClient) -> None:
    for collection, thing in ((JOBS, mpijob(status=live())), (CONFIG_MAPS, ledger_map()), (EVENTS, refused(QUOTA))):
        served.put(collection, thing)
    served.put(EVENTS, preempted_event("other-worker-1"))
    for each in (*THERE, pod("train-worker-2")):
        served.put(PODS, each)
    served.put(LAUNCHER_JOBS, {"metadata": {"name": "train-launcher", "creationTimestamp": stamp(NOW)}})

    def asked() -> list[Any]:
        return [request.query.get("fieldSelector") for request in served.requests if request.path == EVENTS]

    status(cluster, "train")
    assert asked() == []
    served.remove(PODS, "train-worker-2")
    assert QUOTA in status(cluster, "train").workers[2].why
    assert asked() == ["involvedObject.name=train", "involvedObject.name=train-launcher"]


def test_status_reads_the_events_of_pods_that_do_not_start(served: KubeApi, cluster: ClusterClient) -> None:
    mount = 'MountVolume.SetUp failed for volume "output": driver name s3.csi.aws.com not found'
    starting, other = pod("train-worker-2", phase="Pending"), pod("train-launcher-a", role="launcher", phase="Pending")
    for collection, thing in ((JOBS, mpijob()), (CONFIG_MAPS, ledger_map()), (PODS, starting), (PODS, other)):
        served.put(collection, thing)
    for about in ("train-worker-2", "train-launcher-a"):
        told = event(about, "FailedMount", mount, unix=NOW - 30)
        told["involvedObject"]["uid"] = f"uid-{about}"
        served.put(EVENTS, told)
    found = status(cluster, "train")
    assert found.workers[2].why == f"FailedMount: {mount}"
    assert f"its launcher is starting: FailedMount: {mount}" in found.why


def test_an_operator_that_looks_away_is_told_with_what_helps() -> None:
    def notes(**fields: Any) -> list[str]:
        told = job_status(facts(**{"pods": (*THERE, pod("train-worker-2")), **fields})).notes
        return [note for note in told if note.startswith("the MPI Operator")]

    halved = mpijob(status=live(), replicas=1)
    halved["metadata"]["managedFields"] = [
        {"time": stamp(NOW - 300), "fieldsV1": {"f:spec": {}}},
        {"time": stamp(NOW - 40), "fieldsV1": {"f:status": {}}, "subresource": "status"},
        {"time": stamp(NOW - 2), "fieldsV1": {"f:metadata": {"f:annotations": {}}}},
    ]
    (said,) = notes(job=halved)
    assert "made and deleted nothing since" in said
    assert "though 2 workers are too many" in said
    assert "rollout restart deployment mpi-operator" in said
    assert notes(job=halved, now=NOW - 30) == [], "it may be at it still"
    assert notes(job=halved, events=(refused(QUOTA),)) == [], "it does what it can"
    leaving = [pod(f"train-worker-{index}", deleting=True) for index in (1, 2)]
    assert notes(job=halved, pods=(*THERE[:2], *leaving)) == []
    assert notes(job=mpijob(status=live())) == []
    (missing,) = notes(pods=THERE)
    assert "though 1 worker has no pod" in missing
    assert notes(pods=THERE, now=NOW - 600) == [], "the ledger has the moment at which it left"
