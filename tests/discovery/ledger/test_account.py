"""The sums of a ledger are those of the pods' lifetimes, whether or not its beginning was summed up."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.account import JobAccount, fold, summed_up
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    RecordLost,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorldChanged,
    from_lines,
    to_line,
)

PODS = ("job-worker-0", "job-worker-1", "job-worker-2", "stranger")
NOW = 2000.0

times = st.integers(0, 1000).map(float)
"""Whole numbers: their sums are exact in whatever order."""
uids = st.integers(0, 7)


def pod_of(uid: int) -> dict[str, str]:
    return {"pod": PODS[uid % len(PODS)], "uid": str(uid)}


any_entry: st.SearchStrategy[Entry] = st.one_of(
    st.builds(lambda at, uid: LauncherStarted(unix=at, pod="l", uid=str(uid)), times, st.integers(0, 2)),
    st.builds(lambda at: LauncherEnded(unix=at, pod="l", uid="0"), times),
    st.builds(lambda at: RecordLost(unix=at), times),
    st.builds(
        lambda at, uid, gpus, spot: WorkerBound(unix=at, node="n", gpus=gpus, machine="m", spot=spot, **pod_of(uid)),
        times,
        uids,
        st.integers(0, 8),
        st.sampled_from([True, False, None]),
    ),
    st.builds(
        lambda at, uid, why: WorkerLeaving(unix=at, why=why, **pod_of(uid)), times, uids, st.sampled_from(Departure)
    ),
    st.builds(lambda at, uid: WorkerLeaving(unix=at, why=Departure.PREEMPTED, **pod_of(uid)), times, uids),
    st.builds(lambda at, uid: WorkerGone(unix=at, **pod_of(uid)), times, uids),
    st.builds(
        lambda at, workers, step, pause, repeated: WorldChanged(
            unix=at, workers=tuple(workers), step=step, pause_seconds=pause, repeated_steps=repeated
        ),
        times,
        st.lists(st.sampled_from(PODS), unique=True),
        st.integers(-1, 100),
        st.one_of(st.none(), st.integers(0, 9).map(float)),
        st.integers(0, 9),
    ),
    st.builds(lambda at, workers: WantedChanged(unix=at, workers=workers), times, st.integers(0, 4)),
    st.builds(lambda at, step: JobEnded(unix=at, succeeded=True, step=step), times, st.integers(-1, 100)),
)
ledgers = st.lists(any_entry, max_size=30)


def without_zeros(account: JobAccount) -> JobAccount:
    return replace(account, gpu_seconds={key: value for key, value in account.gpu_seconds.items() if value})


@given(ledgers, st.data())
def test_it_does_not_matter_whether_the_beginning_was_summed_up(ledger: list[Entry], data: st.DataObject) -> None:
    whole = without_zeros(fold(ledger, NOW))
    shortened, done = ledger, 0
    for _ in range(2):
        cut = data.draw(st.integers(1, len(shortened) - done) if len(shortened) > done else st.just(0))
        if cut:
            totals, rest = summed_up(shortened[: done + cut])
            shortened = [totals, *rest, *shortened[done + cut :]]
            done = 1 + len(rest)
            assert without_zeros(fold(shortened, NOW)) == whole
    assert without_zeros(fold(from_lines(map(to_line, shortened)), NOW)) == whole


@given(ledgers)
def test_what_is_not_over_is_short(ledger: list[Entry]) -> None:
    _, rest = summed_up(ledger)
    assert len(rest) <= 3 * (8 + len(PODS)) + 5


lifetimes = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 8)), min_size=1, max_size=12)


@given(lifetimes)
def test_what_is_held_is_the_sum_of_the_pods_lifetimes(pods: list[tuple[int, int, int]]) -> None:
    entries: list[Entry] = []
    for number, (begin, length, gpus) in enumerate(pods):
        who = {"pod": f"job-worker-{number}", "uid": str(number)}
        entries.append(WorkerBound(unix=float(begin), node="n", gpus=gpus, machine="m", spot=True, **who))
        entries.append(WorkerGone(unix=float(begin + length), **who))
    entries.sort(key=lambda entry: (entry.unix, entry.kind))
    assert fold(entries, NOW).gpu_seconds == {"m|spot": float(sum(length * gpus for _, length, gpus in pods))}


def bound(at: float, index: int, uid: str, *, gpus: int = 4) -> WorkerBound:
    return WorkerBound(
        unix=at, pod=f"job-worker-{index}", uid=uid, node="n", gpus=gpus, machine="p4d.24xlarge", spot=False
    )


def taken(at: float, gone: float, index: int, uid: str) -> list[Entry]:
    pod = f"job-worker-{index}"
    return [
        WorkerLeaving(unix=at, pod=pod, uid=uid, why=Departure.PREEMPTED, by="inference/web"),
        WorkerGone(unix=gone, pod=pod, uid=uid),
    ]


STORY: list[Entry] = [
    LauncherStarted(unix=0.0, pod="job-launcher-a", uid="l"),
    bound(10.0, 0, "a"),
    bound(10.0, 1, "b"),
    WorldChanged(unix=20.0, workers=("job-worker-0", "job-worker-1"), step=0),
    *taken(100.0, 110.0, 1, "b"),
    WorldChanged(unix=112.0, workers=("job-worker-0",), step=50, pause_seconds=2.0, repeated_steps=3),
]


def test_a_preempted_workers_gpus_are_lent_from_its_end_to_the_next_ones_binding() -> None:
    waiting = fold(STORY, 200.0)
    assert (waiting.lent_gpu_seconds, waiting.lent_gpus) == (4 * 90.0, 4)
    assert waiting.gpu_seconds == {"p4d.24xlarge|on-demand": 4 * 190.0 + 4 * 100.0}
    back = fold([*STORY, bound(150.0, 1, "c")], 200.0)
    assert (back.lent_gpu_seconds, back.lent_gpus) == (4 * 40.0, 0)
    assert back.preemptions == 1


@pytest.mark.parametrize(
    "end",
    [
        WantedChanged(unix=160.0, workers=1),
        WorkerLeaving(unix=160.0, pod="job-worker-0", uid="a", why=Departure.SUSPENDED),
        JobEnded(unix=160.0, succeeded=True),
    ],
)
def test_nothing_is_lent_that_the_job_does_not_want(end: Entry) -> None:
    assert fold([*STORY, end], 200.0).lent_gpu_seconds == 4 * 50.0


def test_a_stall_costs_the_gpus_that_are_held() -> None:
    account = fold(STORY, 200.0)
    assert (account.pause_seconds, account.stalled_gpu_seconds) == (2.0, 8.0)
    assert (account.resizes, account.repeated_steps, account.step) == (1, 3, 50)


def test_a_worker_that_does_not_train_while_others_do_is_idle() -> None:
    """It starts, or no allowed size needs it."""
    surplus = [*STORY, bound(150.0, 1, "c"), bound(150.0, 2, "d", gpus=2)]
    assert fold(surplus, 200.0).idle_gpu_seconds == 50.0 * (4 + 2)
    joined = WorldChanged(unix=180.0, workers=("job-worker-0", "job-worker-1"), step=60)
    assert fold([*surplus, joined], 200.0).idle_gpu_seconds == 30.0 * (4 + 2) + 20.0 * 2
    gone = WorkerGone(unix=160.0, pod="job-worker-2", uid="d")
    assert fold([*surplus, gone], 200.0).idle_gpu_seconds == 50.0 * 4 + 10.0 * 2
    assert fold(STORY, 200.0).idle_gpu_seconds == 0.0


def test_training_ends_with_its_launcher_and_not_with_its_sidecar() -> None:
    assert fold(STORY, 200.0).training_seconds == 180.0
    assert fold([*STORY, LauncherStarted(unix=150.0, pod="job-launcher-a", uid="l")], 200.0).training_seconds == 180.0
    next_one = fold([*STORY, LauncherStarted(unix=150.0, pod="job-launcher-b", uid="k")], 200.0)
    assert (next_one.training_seconds, next_one.launchers, next_one.workers) == (130.0, 2, ())


def test_a_job_that_has_ended_holds_nothing() -> None:
    ended = fold([*STORY, JobEnded(unix=120.0, succeeded=True, step=60)], NOW)
    assert ended.gpu_seconds == {"p4d.24xlarge|on-demand": 4 * 110.0 + 4 * 100.0}
    assert (ended.ended, ended.step, ended.held_gpus) == (120.0, 60, 0)


def test_an_empty_ledger_has_no_beginning() -> None:
    assert fold([], NOW) == JobAccount()


def test_sums_of_which_a_part_was_lost_say_since_when_they_count() -> None:
    entries: list[Entry] = [RecordLost(unix=7.0), LauncherStarted(unix=7.0, pod="l", uid="2")]
    assert fold([], NOW).counts_since is None
    assert fold(entries, NOW).counts_since == 7.0
    totals, rest = summed_up(entries)
    assert fold([totals, *rest], NOW).counts_since == 7.0
