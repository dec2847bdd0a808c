"""Which launchers count as failed."""

import pytest

from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.restart_budget import (
    LauncherJobView,
    limit_after_failure,
    limit_while_running,
    was_taken,
)

RUNS = PodView(name="job-launcher-now", uid="now")


def failed(number: int, **keys: object) -> PodView:
    return PodView(name=f"job-launcher-{number}", uid=str(number), phase="Failed", **keys)  # type: ignore[arg-type]


def job(count: int, limit: int = 3) -> LauncherJobView:
    return LauncherJobView(uid="job", failed=count, limit=limit)


@pytest.mark.parametrize(
    "pod",
    [
        failed(1, disruption="EvictionByEvictionAPI"),
        failed(1, disruption="TerminationByKubelet", reason="Evicted"),
        failed(1, reason="Evicted"),
        PodView(name="a", uid="a", deleting_at=1.0),
    ],
)
def test_a_launcher_that_others_end_was_taken(pod: PodView) -> None:
    assert was_taken(pod)
    assert limit_while_running(job(1), [pod, RUNS], restarts=3) == 3 + 1 + 1
    assert limit_after_failure(job(1), [pod, RUNS], restarts=3) == 3 + 1


def test_deleted_launchers_leave_no_pod_behind() -> None:
    assert limit_while_running(job(7), [RUNS], restarts=3) == 3 + 7 + 1


def test_failures_count_until_they_are_too_many() -> None:
    for failures in range(4):
        pods = [failed(number) for number in range(failures)]
        assert limit_while_running(job(failures), [*pods, RUNS], restarts=3) == 3 + 1
        assert limit_after_failure(job(failures), [*pods, RUNS], restarts=3) == 3
    pods = [failed(number) for number in range(4)]
    assert limit_while_running(job(4), [*pods, RUNS], restarts=3) == 3, (
        "a Job ends when more pods failed than its limit"
    )


def test_none_may_fail() -> None:
    """The Job of `restarts: 0` outlives a drain and ends at the first failure, however many drains came before."""
    for drains in range(5):
        assert limit_while_running(job(drains), [RUNS], restarts=0) > drains
        assert limit_after_failure(job(drains), [RUNS], restarts=0) == drains


def test_what_the_api_server_sends() -> None:
    sent = {"metadata": {"uid": "u"}, "spec": {}, "status": {"failed": 1, "uncountedTerminatedPods": {"failed": ["x"]}}}
    assert LauncherJobView.from_json(sent) == LauncherJobView(uid="u", failed=2, limit=6)
    assert LauncherJobView.from_json({"metadata": {"uid": "u"}, "spec": {"backoffLimit": 0}}).limit == 0
