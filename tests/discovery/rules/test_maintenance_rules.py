"""The decisions that depend on time: reaping, scaling, the first list, an address that is reused."""

from dataclasses import replace

import pytest

from hvd_elastic.discovery import EligibleHosts, Host, LeftOut, NodeView, PodView, Reason, WorkerView
from hvd_elastic.discovery.rules.address_reuse import QUARANTINE_SECONDS, AddressReuse
from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.discovery.rules.first_list import (
    FIRST_ANSWERS_SECONDS,
    QUIET_SECONDS,
    SETTLE_SECONDS,
    FirstList,
)
from hvd_elastic.discovery.rules.reaper import (
    BACKOFF,
    STUCK_SECONDS,
    Reap,
    ReapReason,
    ReapRecord,
    pods_to_reap,
    record_reap,
)
from hvd_elastic.discovery.rules.scale_down import LEAVE_SECONDS, ScalePlan, plan_scale
from hvd_elastic.mpijob.contract import WorkerState

FAILED = PodView(name="job-worker-0", uid="a", owner_uid="job", phase="Failed", ready=False, node="n")
STUCK = PodView(name="job-worker-1", uid="b", owner_uid="job", ready=False, node="n", deleting_at=1000.0)


def reaped(
    view: PodView,
    now: float = 2000.0,
    nodes: dict[str, NodeView] | None = None,
    silent: bool = False,
    records: dict[str, ReapRecord] | None = None,
) -> list[ReapReason]:
    return [reap.reason for reap in reaps(view, now, nodes, silent=silent, records=records)]


def reaps(
    view: PodView,
    now: float = 2000.0,
    nodes: dict[str, NodeView] | None = None,
    silent: bool = False,
    records: dict[str, ReapRecord] | None = None,
) -> tuple[Reap, ...]:
    return pods_to_reap(
        [view], owner_uid="job", nodes=nodes, silent={view.uid} if silent else (), records=records or {}, now=now
    )


def test_a_worker_that_has_ended_is_reaped_and_no_other() -> None:
    assert reaped(FAILED) == [ReapReason.FAILED]
    assert reaped(replace(FAILED, phase="Succeeded")) == [ReapReason.ENDED]
    assert reaped(replace(FAILED, owner_uid="another")) == []
    assert reaped(replace(FAILED, phase="Running")) == []


def test_a_worker_that_ends_as_it_was_told_is_left_to_its_kubelet() -> None:
    for phase in ("Succeeded", "Failed"):
        assert reaped(replace(FAILED, phase=phase, deleting_at=1990.0)) == []


WITHDRAWN = replace(STUCK, deleting_at=None, ready_withdrawn=True)


def test_a_lost_node_takes_two_witnesses() -> None:
    assert reaped(WITHDRAWN, silent=True) == [ReapReason.LOST]
    assert reaped(replace(WITHDRAWN, deleting_at=3000.0), silent=True) == [ReapReason.LOST]
    assert reaped(WITHDRAWN) == []
    assert reaped(replace(WITHDRAWN, ready_withdrawn=False), silent=True) == []


@pytest.mark.parametrize(
    ("nodes", "silent", "expected"),
    [
        ({"n": NodeView(name="n", ready=False)}, True, [ReapReason.STUCK]),
        ({}, True, [ReapReason.STUCK]),
        ({"n": NodeView(name="n", ready=False)}, False, []),
        ({"n": NodeView(name="n")}, True, []),
        (None, True, []),
        (None, False, []),
    ],
)
def test_a_stuck_worker_is_deleted_by_force_only_where_its_node_is_known_to_be_lost(
    nodes: dict[str, NodeView] | None, silent: bool, expected: list[ReapReason]
) -> None:
    assert reaped(STUCK, nodes=nodes, silent=silent) == expected


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_stuck_worker_whose_containers_have_ended_is_deleted_by_force_wherever_it_is(phase: str) -> None:
    ended = replace(STUCK, phase=phase)
    assert reaped(ended, nodes={"n": NodeView(name="n")}) == reaped(ended, nodes=None) == [ReapReason.STUCK]
    assert reaped(ended, now=1000.0 + STUCK_SECONDS - 1) == []


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
@pytest.mark.parametrize("nodes", [None, {}, {"n": NodeView(name="n")}, {"n": NodeView(name="n", ready=False)}])
@pytest.mark.parametrize("deleting_at", [None, 1000.0, 3000.0])
@pytest.mark.parametrize("withdrawn", [True, False])
@pytest.mark.parametrize("silent", [True, False])
def test_force_needs_the_end_of_the_containers_or_two_witnesses(
    phase: str, nodes: dict[str, NodeView] | None, deleting_at: float | None, withdrawn: bool, silent: bool
) -> None:
    view = replace(STUCK, phase=phase, deleting_at=deleting_at, ready_withdrawn=withdrawn)
    for reap in reaps(view, nodes=nodes, silent=silent):
        node_is_out = nodes is not None and not ("n" in nodes and nodes["n"].ready)
        if reap.by_force:
            assert phase != "Running" or (silent and (withdrawn or node_is_out))
        assert ("which is not Ready" in reap.message) <= node_is_out


def test_a_stuck_worker_has_its_grace_and_some_time_more() -> None:
    assert reaped(STUCK, now=1000.0 + STUCK_SECONDS - 1, nodes={}, silent=True) == []
    assert reaped(STUCK, now=1000.0 + STUCK_SECONDS, nodes={}, silent=True) == [ReapReason.STUCK]


def test_a_name_that_fails_again_and_again_is_reaped_ever_later_within_bounds() -> None:
    record, waits, now = None, [], 0.0
    for _ in range(9):
        record = record_reap(record, now)
        waits.append(record.next_at() - now)
        assert reaped(FAILED, now=record.next_at() - 1, records={FAILED.name: record}) == []
        now = record.next_at()
        assert reaped(FAILED, now=now, records={FAILED.name: record}) == [ReapReason.FAILED]
    assert waits[:4] == [10, 20, 40, 80]
    assert max(waits) == BACKOFF.most_seconds


def test_a_clock_that_is_set_back_keeps_no_dead_pod() -> None:
    record = record_reap(None, 90_000.0)
    assert reaped(FAILED, now=90_001.0, records={FAILED.name: record}) == []
    assert reaped(FAILED, now=3_600.0, records={FAILED.name: record}) == [ReapReason.FAILED]


def workers_at(*states: WorkerState) -> tuple[list[PodView], dict[str, WorkerView]]:
    pods = [PodView(name=f"job-worker-{i}", uid=str(i), ip=f"10.0.0.{i}") for i in range(len(states))]
    return pods, {str(i): WorkerView(state=state) for i, state in enumerate(states)}


T, W = WorkerState.TRAINING, WorkerState.WAITING


@pytest.mark.parametrize(
    ("wanted", "states", "waited", "expected"),
    [
        ("", (T, T, T), 0.0, ScalePlan()),
        ("3", (T, T, T), 0.0, ScalePlan()),
        ("1", (T, T, T), 0.0, ScalePlan(victims=frozenset("12"))),
        ("1", (T, W, T), 0.0, ScalePlan(victims=frozenset("12"))),
        ("1", (T, W, W), 0.0, ScalePlan(victims=frozenset("12"), replicas=1)),
        ("1", (T, T, T), LEAVE_SECONDS, ScalePlan(victims=frozenset("12"), replicas=1)),
        ("4", (T, T, T), 0.0, ScalePlan(replicas=4)),
        ("5", (T, T, T), 0.0, ScalePlan(refusal="wanted: 5, but the job has 1 to 4 workers")),
        ("0", (T, T, T), 0.0, ScalePlan(refusal="wanted: 0, but the job has 1 to 4 workers")),
        ("few", (T, T, T), 0.0, ScalePlan(refusal="wanted: few, but the job has 1 to 4 workers")),
    ],
)
def test_victims_leave_before_the_replicas_are_lowered(
    wanted: str, states: tuple[WorkerState, ...], waited: float, expected: ScalePlan
) -> None:
    pods, workers = workers_at(*states)
    job = JobView(uid="u", replicas=3, wanted=wanted)
    assert plan_scale(job, pods, workers, min_workers=1, max_workers=4, waited_seconds=waited) == expected


LATE = [PodView(name="late", uid="l", node="n")]
"""A pod that is bound, and not ready."""


def host(name: str, address: str = "10.0.0.1", generation: int = 0) -> Host:
    return Host(address=address, slots=1, alias=f"{name}-{generation}", pod=name)


@pytest.mark.parametrize(
    ("came", "soon", "went_out"),
    [
        ((0.0,), None, 0.0),
        ((0.0,), Reason.NOT_READY, QUIET_SECONDS),
        ((0.0, 0.5), Reason.NOT_READY, 0.5 + QUIET_SECONDS),
        ((0.0, 0.5, 1.0, 1.5), Reason.PENDING, SETTLE_SECONDS),
        ((0.0,), Reason.DISRUPTED, 0.0),
        ((), Reason.NOT_ASKED, FIRST_ANSWERS_SECONDS),
        ((), None, 0.0),
    ],
)
def test_the_first_list_waits_within_bounds(came: tuple[float, ...], soon: Reason | None, went_out: float) -> None:
    """`came`: when each host was eligible."""
    first = FirstList(max_workers=9)
    left_out = (LeftOut(pod="late", reason=soon),) if soon else ()
    for now in sorted({*came, went_out - 0.01, went_out} - {-0.01}):
        hosts = tuple(host(str(number)) for number, moment in enumerate(came) if moment <= now)
        eligible = EligibleHosts(hosts=hosts, left_out=left_out)
        if hosts or not came:
            assert first.release(eligible, LATE, listed=0.0, now=now) is (now >= went_out)
    assert first.is_out is bool(came)


def test_a_full_job_and_a_running_job_wait_for_no_worker() -> None:
    eligible = EligibleHosts(hosts=(host("a"),), left_out=(LeftOut(pod="late", reason=Reason.NOT_READY),))
    for first, goes_out in [
        (FirstList(max_workers=1), True),
        (FirstList(max_workers=3, had_hosts=True), True),
        (FirstList(max_workers=3), False),
    ]:
        assert first.release(eligible, LATE, listed=0.0, now=0.0) is goes_out
        assert first.is_out is goes_out


def test_an_address_is_held_back_from_another_pod_only() -> None:
    reuse = AddressReuse([host("a")])
    assert reuse.quarantine([host("b")], 0.0) == {"b"}
    assert reuse.quarantine([host("a", generation=1)], 0.0) == frozenset()
    reuse.published([], [host("a")], 10.0)
    assert reuse.quarantine([host("b")], 10.0 + QUARANTINE_SECONDS - 0.1) == {"b"}
    assert reuse.quarantine([host("a")], 10.0) == frozenset()
    assert reuse.quarantine([host("b")], 10.0 + QUARANTINE_SECONDS) == frozenset()
    reuse.published([host("b")], [], 14.0)
    assert reuse.quarantine([host("a")], 14.0) == {"a"}


def test_a_victim_whose_kubelet_starts_anew_is_waited_for() -> None:
    pods, workers = workers_at(T, T, T)
    pods[2] = replace(pods[2], ready=False, runs_on=True)
    plan = plan_scale(JobView(uid="u", replicas=3, wanted="2"), pods, workers, min_workers=1, max_workers=4)
    assert plan.replicas is None


@pytest.mark.parametrize("trains", [True, False])
def test_a_victim_that_starts_is_waited_for_once_it_trains(trains: bool) -> None:
    pods, workers = workers_at(T, T, T)
    pods[2] = replace(pods[2], ready=False, starting=True)
    del workers["1"], pods[1]
    if not trains:
        del workers["2"]
    plan = plan_scale(JobView(uid="u", replicas=3, wanted="1"), pods, workers, min_workers=1, max_workers=4)
    assert plan.replicas == (None if trains else 1)
