"""One word for what a job does, and never a guess."""

from typing import Any

import pytest

from hvd_elastic.client.report.job_state import JobState, find_state, state_of_listed
from hvd_elastic.discovery.ledger.entries import JobEnded, LauncherEnded
from hvd_elastic.discovery.ledger.live_status import Activity
from hvd_elastic.mpijob.contract import ANNOTATION_BEGUN
from tests.hvd_elastic.client.report.objects import (
    LEDGER,
    NOW,
    condition,
    facts,
    launcher,
    live,
    mpijob,
    pod,
    queued,
    workload,
)


@pytest.mark.parametrize(
    ("activity", "state"),
    [
        (Activity.STARTING, JobState.STARTING),
        (Activity.TRAINING, JobState.TRAINING),
        (Activity.WAITING, JobState.WAITING),
        (Activity.STALLED, JobState.STALLED),
    ],
)
def test_what_the_sidecar_says_is_the_state(activity: Activity, state: JobState) -> None:
    found = find_state(facts(job=mpijob(status=live(activity=activity))))
    assert (found.state, found.since) == (state, NOW - 600)


def test_what_the_ranks_wait_for_is_why() -> None:
    found = find_state(facts(job=mpijob(status=live(stall="rank 0 waits in allreduce w", stall_since=NOW - 75))))
    assert (found.state, found.why) == (JobState.TRAINING, "rank 0 waits in allreduce w, for 1 min 15 s now")


def test_an_old_word_is_never_taken_for_the_present() -> None:
    old = mpijob(status=live(unix=NOW - 300))
    found = find_state(facts(job=old))
    assert found.state is JobState.NO_REPORT
    assert "300 s ago: training then" in found.why
    assert state_of_listed(old, NOW).state is JobState.NO_REPORT


def test_without_a_launcher_nobody_trains_whatever_was_said_last() -> None:
    found = find_state(facts(pods=()))
    assert found.state is JobState.WAITING
    assert "it has no launcher" in found.why
    leaving = find_state(facts(pods=(launcher(deleting=True),)))
    assert (leaving.state, leaving.why) == (JobState.WAITING, "its launcher ends")


def test_a_job_whose_script_never_ran_does_not_wait() -> None:
    """Its launcher had workers for it, and so the next one need not wait for all of them again: no more is known."""
    begun, has_run = (mpijob(status=live(activity=Activity.STARTING, step=-1, has_run=run)) for run in (False, True))
    begun["metadata"]["annotations"][ANNOTATION_BEGUN] = "true"
    assert find_state(facts(job=begun, pods=())).state is JobState.STARTING
    assert find_state(facts(job=has_run, pods=())).state is JobState.WAITING


def test_a_launcher_that_is_not_there_yet_says_what_it_waits_for() -> None:
    message = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2"
    said = {"type": "PodScheduled", "status": "False", "message": message}
    pending = find_state(facts(pods=(launcher(phase="Pending", node="", conditions=[said]),)))
    assert pending.why == "its launcher is pending: 0/2 nodes are available: 2 Insufficient cpu"
    assert find_state(facts(pods=(launcher(phase="Pending"),))).why == "its launcher is starting"


def test_a_job_of_an_older_version_does_not_tell_whether_it_trains() -> None:
    found = find_state(facts(job=mpijob(), ledger=None))
    assert found.state is JobState.NO_REPORT
    assert find_state(facts(job=mpijob(), ledger=None, pods=())).state is JobState.STARTING


def test_an_evicted_worker_does_not_end_a_job() -> None:
    evicted = condition("Failed", "MPIJobEvicted", "1/3 workers are evicted")
    assert find_state(facts(job=mpijob(status=live(), conditions=[evicted]))).state is JobState.TRAINING


@pytest.mark.parametrize(
    ("code", "state", "why"),
    [
        (1, JobState.FAILED, "exit code 1"),
        (70, JobState.EXHAUSTED, "min workers"),
        (71, JobState.EXHAUSTED, "reset limit"),
        (72, JobState.EXHAUSTED, "restarts are used up"),
    ],
)
def test_want_of_workers_is_not_a_failure_of_the_script(code: int, state: JobState, why: str) -> None:
    failed = mpijob(conditions=[condition("Failed", "BackoffLimitExceeded")], ended=NOW - 50)
    ledger = (*LEDGER, LauncherEnded(unix=NOW - 51, pod="l", uid="u", exit_code=code))
    found = find_state(facts(job=failed, ledger=ledger))
    assert (found.state, found.since) == (state, NOW - 50)
    assert why in found.why


def test_a_failed_launchers_last_word_is_the_reason() -> None:
    failed = mpijob(conditions=[condition("Failed", "BackoffLimitExceeded")], ended=NOW - 50)
    ended = LauncherEnded(unix=NOW - 51, pod="l", uid="u", exit_code=79, reason="rank 1 has left")
    assert find_state(facts(job=failed, ledger=(*LEDGER, ended))).why.endswith("with exit code 79: rank 1 has left")


def test_without_a_ledger_the_launchers_pod_tells_its_exit_code() -> None:
    failed = mpijob(conditions=[condition("Failed")], ended=NOW - 50)
    ended = {"name": "launcher", "state": {"terminated": {"exitCode": 70, "finishedAt": "2027-01-15T07:59:00Z"}}}
    found = find_state(facts(job=failed, ledger=None, pods=(launcher(phase="Failed", containers=[ended]),)))
    assert found.state is JobState.EXHAUSTED


@pytest.mark.parametrize(("code", "state"), [(70, JobState.EXHAUSTED), (1, JobState.FAILED), (None, JobState.FAILED)])
def test_a_list_tells_want_of_workers_from_a_failure_by_the_sidecars_last_word(
    code: int | None, state: JobState
) -> None:
    said = live(activity=Activity.ENDED, workers=0, exit_code=code)
    failed = mpijob(status=said, conditions=[condition("Failed", "BackoffLimitExceeded")], ended=NOW - 50)
    assert state_of_listed(failed, NOW).state is state


def test_the_ledger_knows_of_the_end_before_the_operator_does() -> None:
    ended = JobEnded(unix=NOW - 3, succeeded=True, exit_code=0)
    assert find_state(facts(ledger=(*LEDGER, ended))).state is JobState.SUCCEEDED


def test_the_launchers_job_and_its_pod_know_of_the_end_before_the_operator_does() -> None:
    assert find_state(facts(pods=(launcher(phase="Succeeded"),))).state is JobState.SUCCEEDED
    over = {"status": {"conditions": [condition("Failed", "BackoffLimitExceeded", "limit reached", at=NOW - 7)]}}
    found = find_state(facts(launcher_job=over))
    assert (found.state, found.since, found.why) == (JobState.FAILED, NOW - 7, "limit reached")


def test_a_success_takes_an_eviction_back() -> None:
    both = [condition("Failed", "MPIJobEvicted"), condition("Succeeded", at=NOW - 10)]
    found = find_state(facts(job=mpijob(conditions=both, ended=NOW - 10)))
    assert (found.state, found.since) == (JobState.SUCCEEDED, NOW - 10)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (None, "is there such a LocalQueue"),
        ({"status": {}}, "not yet looked at"),
        (
            {"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "no quota left"}]}},
            "queue team: no quota left",
        ),
    ],
)
def test_a_job_in_a_queue_says_what_the_queue_says(workload: Any, said: str) -> None:
    queued = mpijob(suspend=True, labels={"kueue.x-k8s.io/queue-name": "team"})
    found = find_state(facts(job=queued, workload=workload, pods=()))
    assert found.state is JobState.QUEUED
    assert said in found.why


def test_a_job_that_nobody_queues_is_suspended() -> None:
    job = mpijob(suspend=True, conditions=[condition("Suspended", at=NOW - 70)])
    found = find_state(facts(job=job, pods=()))
    assert (found.state, found.since) == (JobState.SUSPENDED, NOW - 70)


def test_exit_codes_stay_as_they_are() -> None:
    assert {str(state): state.exit_code for state in JobState} == {
        "starting": 10,
        "training": 0,
        "waiting": 11,
        "stalled": 12,
        "unheard": 13,
        "queued": 14,
        "suspended": 15,
        "succeeded": 0,
        "exhausted": 21,
        "failed": 20,
    }


@pytest.mark.parametrize("activity", [Activity.STARTING, Activity.WAITING])
def test_a_job_whose_workers_wait_for_quota_is_queued_and_has_the_queue_s_words(activity: Activity) -> None:
    job = mpijob(status=live(activity=activity, workers=0, queued=2))
    pods = (launcher(), pod("train-worker-0"), queued("train-worker-1"), queued("train-worker-2"))
    said = {"uid-train-worker-1": workload("insufficient unused quota for nvidia.com/gpu in flavor any, 1 more needed")}
    found = find_state(facts(job=job, pods=pods, pod_workloads=said))
    assert found.state is JobState.QUEUED
    assert found.why.startswith("2 workers wait in queue research: insufficient unused quota for nvidia.com/gpu")
    assert state_of_listed(job, NOW).state is JobState.QUEUED


def test_a_job_that_trains_with_some_is_not_queued() -> None:
    job = mpijob(status=live(queued=1))
    pods = (launcher(), pod("train-worker-0"), pod("train-worker-1"), queued("train-worker-2"))
    assert find_state(facts(job=job, pods=pods)).state is JobState.TRAINING
    assert state_of_listed(job, NOW).state is JobState.TRAINING
