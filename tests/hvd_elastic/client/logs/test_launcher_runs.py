"""Which logs there are, from pods as the API server has them."""

from typing import Any

import pytest

from hvd_elastic.client.logs.launcher_runs import RunState, job_launchers
from tests.hvd_elastic.client.logs.launchers import ended, finished, job, launcher, running

Seen = list[tuple[str, int, bool, str]]


def seen(*pods: dict[str, Any]) -> Seen:
    return [(run.pod, run.number, run.is_previous, str(run.state)) for run in job_launchers(job(), pods).runs]


@pytest.mark.parametrize(
    ("pod", "runs"),
    [
        (launcher(state=None, phase="Pending"), [(0, False, "waiting")]),
        (launcher(state={"waiting": {"reason": "PodInitializing"}}, phase="Pending"), [(0, False, "waiting")]),
        (launcher(state=running()), [(0, False, "running")]),
        (launcher(state=ended(1), phase="Failed"), [(0, False, "ended")]),
        (launcher(state=running(), last=ended(1), restarts=2), [(1, True, "ended"), (2, False, "running")]),
        (launcher(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=ended(1), restarts=2), [(2, False, "ended")]),
        (launcher(state=None, phase="Failed"), []),
    ],
    ids=["unplaced", "initializing", "running", "failed", "restarted", "crash-loop", "evicted before it ran"],
)
def test_the_runs_of_a_pod(pod: dict[str, Any], runs: list[tuple[int, bool, str]]) -> None:
    assert seen(pod) == [("job-launcher-a", *run) for run in runs]


def test_launchers_come_in_the_order_in_which_they_were_made() -> None:
    pods = [launcher("b", minute=2, state=running()), launcher("z", minute=1, state=ended(1))]
    assert [run[0] for run in seen(*pods)] == ["z", "b"]


def test_other_pods_and_those_of_an_earlier_job_of_this_name_are_left_out() -> None:
    worker, old = launcher("job-worker-0", state=running()), launcher("old", state=running())
    worker["metadata"]["labels"]["training.kubeflow.org/job-role"] = "worker"
    old["metadata"]["creationTimestamp"] = "2025-12-31T23:59:59Z"
    assert seen(worker, old) == []


def test_the_legacy_operator_labels_launchers_in_its_own_way() -> None:
    pod = launcher(state=running())
    pod["metadata"]["labels"] = {"training.kubeflow.org/replica-type": "launcher"}
    assert len(seen(pod)) == 1


def test_a_container_of_another_name() -> None:
    pod = launcher(state=running())
    pod["spec"]["containers"] = [{"name": "mpi"}]
    pod["status"]["containerStatuses"][0]["name"] = "mpi"
    (run,) = job_launchers(job(), [pod]).runs
    assert run.container == "mpi"


def test_only_a_completed_job_has_ended() -> None:
    evicted = job(conditions=[{"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}])
    assert job_launchers(evicted, []).ended == ""
    assert job_launchers(finished(), []).ended == "has succeeded"
    assert job_launchers(finished("Failed"), []).ended == "has failed"


def test_why_there_is_nothing_to_read() -> None:
    unplaced = launcher(state=None, phase="Pending")
    unplaced["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]
    waiting = launcher(state={"waiting": {"reason": "ImagePullBackOff"}}, phase="Pending")
    assert job_launchers(job(), [unplaced]).waits_for == "launcher job-launcher-a waits: 0/2 nodes"
    assert job_launchers(job(), [waiting]).waits_for == "launcher job-launcher-a waits: ImagePullBackOff"
    assert job_launchers(job(), []).waits_for == "no launcher is there"
    assert job_launchers(job(suspended=True), []).waits_for == "the job is suspended"


def test_how_a_run_has_ended_in_words() -> None:
    failed, killed, gone = (
        job_launchers(job(), [launcher(state=state)]).runs[0]
        for state in (ended(1), ended(137, "OOMKilled"), running())
    )
    assert failed.outcome == "ended with exit code 1"
    assert killed.outcome == "ended with exit code 137 (OOMKilled)"
    assert gone.state is RunState.RUNNING
    assert gone.outcome == "is gone"
