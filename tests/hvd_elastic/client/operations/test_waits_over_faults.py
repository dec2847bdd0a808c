"""No fault of the API server that passes ends a wait, whoever waits and whatever for."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hvd_elastic.client.connection.cluster_client import ForbiddenError
from hvd_elastic.client.operations.deletion import delete, plan_deletion
from hvd_elastic.client.operations.first_step import wait_for_first_step
from hvd_elastic.client.operations.restart import plan_restart, restart
from hvd_elastic.client.operations.scaling import wait_for_size
from hvd_elastic.client.operations.staging_job import wait_for_stage
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.profile.size_visits import visit_sizes
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from testbed.kube_api import JOBS, PODS, Cut, Request, Status
from tests.hvd_elastic.client.operations.jobs_cluster import ACCOUNTS, JobsCluster, spec
from tests.hvd_elastic.client.operations.test_staging_job import BATCH, SPEC, end
from tests.hvd_elastic.client.profile.test_size_visits import Follower

Sleep = Callable[[float], None]

CUT, ANSWERED = 0, 200
PASSING = (503, 429, 500, CUT, 502, 504, 410)
REFUSED = (*[ANSWERED] * 4, 401, 403)
"""Who has had answers is refused for a moment."""


@dataclass
class Wait:
    """Somebody who waits, and what he waits for."""

    begin: Callable[[Sleep], object]
    happen: Callable[[], object]


def first_step(cluster: JobsCluster) -> Wait:
    submit(cluster.client(), spec())
    return Wait(
        begin=lambda sleep: wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=sleep),
        happen=lambda: train(cluster, 1),
    )


def size(cluster: JobsCluster) -> Wait:
    submit(cluster.client(), spec())
    return Wait(
        begin=lambda sleep: wait_for_size(cluster.client(), "bert", 2, report=lambda _one: None, sleep=sleep),
        happen=lambda: train(cluster, 2),
    )


def stage(cluster: JobsCluster) -> Wait:
    cluster.objects.setdefault(BATCH, {})
    submit(cluster.client(), SPEC)
    return Wait(
        begin=lambda sleep: wait_for_stage(cluster.client(), SPEC, sleep=sleep),
        happen=lambda: end(cluster, "Complete"),
    )


def deletion(cluster: JobsCluster) -> Wait:
    submit(cluster.client(), spec())
    cluster.change_job(metadata={"finalizers": ["foregroundDeletion"]})
    plan = plan_deletion(cluster.client(), "bert")

    def begin(sleep: Sleep) -> None:
        delete(cluster.client(), plan, volumes=False, sleep=sleep)
        assert not cluster.objects[ACCOUNTS]

    return Wait(begin=begin, happen=lambda: let_go(cluster))


def renewal(cluster: JobsCluster) -> Wait:
    submit(cluster.client(), spec())
    cluster.change_job(
        metadata={"finalizers": ["foregroundDeletion"]}, status={"completionTime": "2026-01-01T00:00:00Z"}
    )
    plan = plan_restart(cluster.client(), "bert")
    cluster.objects[ACCOUNTS].clear()  # nothing beside it needs to be looked at before

    def begin(sleep: Sleep) -> None:
        restart(cluster.client(), plan, sleep=sleep)
        assert "status" not in cluster.job()

    return Wait(begin=begin, happen=lambda: let_go(cluster))


def sizes(cluster: JobsCluster) -> Wait:
    submit(cluster.client(), spec())
    follower = Follower(cluster)
    follower.look()

    def begin(sleep: Sleep) -> None:
        visit_sizes(cluster.client(), "bert", (1, 2), steps=20, report=lambda _one: None, sleep=sleep)
        assert follower.sizes == [4, 1, 2, 4]

    return Wait(begin=begin, happen=follower.look)


def train(cluster: JobsCluster, workers: int) -> None:
    live = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=workers, step=3)
    cluster.annotate(status=live.to_json())
    cluster.change_job(spec={"mpiReplicaSpecs": {"Worker": {"replicas": workers}}})


def let_go(cluster: JobsCluster) -> None:
    if "finalizers" in cluster.objects[JOBS].get("bert", {}).get("metadata", {}):
        cluster.change_job(metadata={"finalizers": None})
        cluster.remove(JOBS, "bert")


def break_down(cluster: JobsCluster, faults: list[int], *, only: Callable[[Request], bool]) -> None:
    """From now on a request meets the next of these."""

    def fault(request: Request) -> None:
        code = faults.pop(0) if faults and only(request) else ANSWERED
        if code == CUT:
            raise Cut
        if code != ANSWERED:
            raise Status(code, headers={"Retry-After": "7"} if code == 429 else {})

    cluster.fault = fault


@pytest.mark.parametrize("make", [first_step, size, stage, deletion, renewal, sizes])
def test_faults_that_pass_do_not_end_a_wait(cluster: JobsCluster, make: Callable[[JobsCluster], Wait]) -> None:
    wait = make(cluster)
    left, slept = [*PASSING, *REFUSED], list[float]()
    # What is read once, before anything is waited for, may fail: nothing is lost by that.
    asked = BATCH if make is stage else JOBS
    break_down(cluster, left, only=lambda request: request.path.startswith(f"{asked}/"))

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not left:
            wait.happen()

    if make is sizes:  # it looks at the job before it begins
        left.insert(0, ANSWERED)
    wait.begin(sleep)
    assert not left
    assert max(slept) >= 7, "the server asked for time"


def test_a_right_that_was_never_there_is_told_at_once(cluster: JobsCluster) -> None:
    wait = first_step(cluster)
    break_down(cluster, [403], only=lambda request: request.path == PODS)
    with pytest.raises(ForbiddenError):
        wait.begin(lambda _seconds: None)


def test_what_was_not_read_is_not_left_out_of_a_deletion(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    break_down(cluster, [503], only=lambda request: request.path == ACCOUNTS)
    with pytest.raises(Exception, match="HTTP 503"):
        plan_deletion(cluster.client(), "bert")


def test_a_submission_that_is_refused_for_a_moment_is_not_told_as_wrong(cluster: JobsCluster) -> None:
    break_down(cluster, [429], only=lambda request: request.method == "PATCH")
    with pytest.raises(Exception, match="HTTP 429") as raised:
        submit(cluster.client(), spec())
    assert raised.type.__name__ == "RefusedError"
