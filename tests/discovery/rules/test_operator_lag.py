"""What the MPI Operator has to do for a job, for how long it does nothing, and when we leave the MPIJob alone."""

from dataclasses import replace
from typing import Any, Final

import pytest

from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.discovery.rules.operator_lag import (
    HELD_SECONDS,
    SETTLE_SECONDS,
    OperatorLag,
    OperatorWork,
    operator_work,
)
from testbed.kube_api import mpijob

JOB: Final = JobView(uid="job", replicas=3, noted_workers=3)


def worker(index: int, **differs: Any) -> PodView:
    return replace(PodView(name=f"job-worker-{index}", uid=str(index), owner_uid="job"), **differs)


WORKERS: Final = tuple(worker(index) for index in range(3))


@pytest.mark.parametrize(
    ("job", "pods", "work"),
    [
        (JOB, WORKERS, OperatorWork()),
        (JOB, WORKERS[:2], OperatorWork(missing=1, unnoted=1)),
        (replace(JOB, noted_workers=2), WORKERS[:2], OperatorWork(missing=1)),
        (replace(JOB, replicas=1), WORKERS, OperatorWork(surplus=2, unnoted=2)),
        # Its part is done: the kubelets end them.
        (replace(JOB, replicas=1, noted_workers=1), [WORKERS[0], worker(1, deleting_at=9.0)], OperatorWork()),
        # One that leaves is made again when it is gone, and runs until then.
        (JOB, [*WORKERS[:2], worker(2, deleting_at=9.0)], OperatorWork()),
        (JOB, [*WORKERS[:2], worker(2, phase="Pending")], OperatorWork(unnoted=1)),
        (replace(JOB, noted_workers=None), WORKERS, OperatorWork()),
        (replace(JOB, suspended=True), WORKERS, OperatorWork(surplus=3)),
        (replace(JOB, suspended=True), [worker(0, phase="Failed")], OperatorWork()),
        (replace(JOB, replicas=0), WORKERS, OperatorWork()),
        (replace(JOB, ended="Failed"), (), OperatorWork()),
        (replace(JOB, has_mpi_operator=False), (), OperatorWork()),
        (JOB, [*WORKERS, worker(7, owner_uid="another")], OperatorWork()),
    ],
)
def test_what_the_operator_has_to_do(job: JobView, pods: Any, work: OperatorWork) -> None:
    assert operator_work(job, pods) == work


def test_the_operators_own_word_is_read_and_other_kinds_of_jobs_have_another_operator() -> None:
    ours = mpijob()
    assert JobView.from_json(ours).noted_workers is None
    status = {"replicaStatuses": {"Launcher": {"active": 1}, "Worker": {}}}
    assert JobView.from_json({**ours, "status": status}).noted_workers == 0
    status["replicaStatuses"]["Worker"] = {"active": 2}
    assert JobView.from_json({**ours, "status": status}).noted_workers == 2
    assert JobView.from_json(ours).has_mpi_operator
    assert not JobView.from_json({**ours, "apiVersion": "kubeflow.org/v1"}).has_mpi_operator
    for manager, is_it in (("kubeflow.org/mpi-operator", True), ("kueue.x-k8s.io/multikueue", False)):
        managed = {**ours, "spec": {**ours["spec"], "runPolicy": {"managedBy": manager}}}
        assert JobView.from_json(managed).has_mpi_operator is is_it


def test_it_is_late_since_it_last_made_or_deleted_a_pod() -> None:
    lag = OperatorLag()
    assert lag.wait_seconds(99.0) == 0.0
    lag.see(OperatorWork(surplus=9), 100.0)
    assert lag.wait_seconds(104.0) == 4.0
    lag.see(OperatorWork(surplus=7), 105.0)
    assert lag.wait_seconds(110.0) == 5.0, "it has deleted two"
    lag.see(OperatorWork(missing=1, surplus=7), 111.0)
    lag.see(OperatorWork(missing=2, surplus=7, unnoted=1), 112.0)
    assert lag.wait_seconds(113.0) == 8.0, "what others do, or what it has only to note, is no move of it"
    lag.see(OperatorWork(unnoted=3), 114.0)
    assert lag.wait_seconds(200.0) == 0.0, "it has no pods to see to"
    lag.see(OperatorWork(missing=1), 300.0)
    assert lag.wait_seconds(301.0) == 1.0


def test_nothing_is_written_while_the_operator_works_and_a_moment_longer() -> None:
    lag = OperatorLag()
    never = float("-inf")
    assert not lag.holds_back(0.0, wrote=never)
    for moment, work in enumerate((OperatorWork(surplus=2), OperatorWork(surplus=1), OperatorWork(unnoted=1))):
        lag.see(work, float(moment))
        assert lag.holds_back(moment + 0.9, wrote=never)
    lag.see(OperatorWork(), 3.0)
    assert lag.holds_back(3.0 + SETTLE_SECONDS - 0.1, wrote=never)
    assert not lag.holds_back(3.0 + SETTLE_SECONDS, wrote=never)


def test_an_operator_at_which_nothing_moves_is_written_to_now_and_then() -> None:
    lag = OperatorLag()
    lag.see(OperatorWork(missing=1), 0.0)
    lag.see(OperatorWork(missing=1), HELD_SECONDS - 2)
    assert lag.holds_back(HELD_SECONDS - 1, wrote=-100.0)
    assert not lag.holds_back(HELD_SECONDS, wrote=-100.0)
    assert lag.holds_back(HELD_SECONDS + 10, wrote=HELD_SECONDS)
    assert not lag.holds_back(2 * HELD_SECONDS, wrote=HELD_SECONDS)
