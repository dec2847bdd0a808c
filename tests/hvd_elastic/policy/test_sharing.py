"""Several jobs and too few GPUs: how near the division is to the best, and how seldom it changes."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.policy import division
from hvd_elastic.policy.job_demand import JobDemand, Speeds
from hvd_elastic.policy.sharing import LEAST_GAIN, most_workers, share, useful_gpus
from tests.hvd_elastic.policy.demands import demand, demands, speeds
from tests.properties import examples

gpu_counts = st.integers(0, 24)


def worth(jobs: Sequence[JobDemand], workers: Mapping[str, int]) -> float:
    return sum(useful_gpus(job, workers[job.name]) for job in jobs)


def held(jobs: Sequence[JobDemand], workers: Mapping[str, int]) -> int:
    return sum(workers[job.name] * job.gpus for job in jobs)


def best_worth(jobs: Sequence[JobDemand], gpus: int) -> float:
    """By trying every division of these jobs."""
    names = [job.name for job in jobs]
    sizes = (range(job.min, most_workers(job) + 1) for job in jobs)
    tried = (dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*sizes))
    return max(worth(jobs, each) for each in tried if held(jobs, each) <= gpus)


def played(
    jobs: tuple[JobDemand, ...], gpus: Sequence[int], *, noise: float = 0.0, seed: int = 0, every: float = 30.0
) -> Iterator[tuple[JobDemand, ...]]:
    """The jobs after each turn, as a cluster would carry out what `share` says."""
    rng = random.Random(seed)
    for room in gpus:
        seen = tuple(replace(job, speeds=measured(job.speeds, noise, rng)) for job in jobs)
        wanted = share(seen, room)
        jobs = tuple(after(job, wanted[job.name], every) for job in jobs)
        yield jobs


def measured(true: Speeds, noise: float, rng: random.Random) -> Speeds:
    return Speeds(tuple(speed * rng.uniform(1 - noise, 1 + noise) for speed in true))


def after(job: JobDemand, wanted: int, seconds: float) -> JobDemand:
    changes = wanted != job.workers and job.workers > 0
    return replace(
        job,
        workers=wanted,
        wanted=wanted,
        age_seconds=job.age_seconds + seconds if job.workers else 0.0,
        resizes=job.resizes + changes,
        since_resize_seconds=0.0 if changes else job.since_resize_seconds + seconds,
    )


def resizes(turns: Sequence[tuple[JobDemand, ...]]) -> int:
    return sum(job.resizes for job in turns[-1])


@given(jobs=demands(sizes=(1, 2, 4)), gpus=gpu_counts)
def test_no_bound_is_ever_broken(jobs: tuple[JobDemand, ...], gpus: int) -> None:
    workers = share(jobs, gpus)
    assert held(jobs, workers) <= gpus
    for job in jobs:
        assert workers[job.name] == 0 or job.min <= workers[job.name] <= most_workers(job)


@given(
    jobs=demands(sizes=(1, 2, 3), only_some=True),
    gpus=gpu_counts,
    wanted=st.lists(st.integers(0, 5), min_size=3, max_size=3),
)
def test_only_allowed_sizes_are_given_and_nothing_is_worth_more(
    jobs: tuple[JobDemand, ...], gpus: int, wanted: list[int]
) -> None:
    """Whatever numbers they have, as after a preemption."""
    jobs = tuple(replace(job, workers=one, wanted=one) for job, one in zip(jobs, wanted, strict=False))
    workers = share(jobs, gpus)
    assert held(jobs, workers) <= gpus
    assert all(workers[job.name] in {0, *job.sizes} for job in jobs)
    waiting = tuple(replace(job, workers=0, wanted=0) for job in jobs)
    workers = share(waiting, gpus)
    running = [job for job in jobs if workers[job.name]]
    assert worth(running, workers) == pytest.approx(best_worth(running, gpus)) if running else True


def test_a_worker_that_no_allowed_size_needs_goes_where_it_trains() -> None:
    jobs = demand("team/a", sizes=(1, 2, 4, 8), workers=4, wanted=5), demand("team/b", workers=3, wanted=3)
    assert share(jobs, 8) == {"team/a": 4, "team/b": 4}


@given(jobs=demands(sizes=(1, 2)), gpus=gpu_counts)
def test_nobody_gets_more_than_min_while_another_could_have_its_min(jobs: tuple[JobDemand, ...], gpus: int) -> None:
    workers = share(jobs, gpus)
    slack = gpus - sum(job.min * job.gpus for job in jobs if workers[job.name])
    for job in jobs:
        assert workers[job.name] or most_workers(job) < job.min or job.min * job.gpus > slack


@given(jobs=demands(concave=True), gpus=gpu_counts)
def test_concave_speeds_without_a_history_give_the_optimum(jobs: tuple[JobDemand, ...], gpus: int) -> None:
    workers = share(jobs, gpus)
    running = [job for job in jobs if workers[job.name]]
    assert worth(running, workers) == pytest.approx(best_worth(running, gpus)) if running else True


@given(jobs=demands(sizes=(1, 2, 3)), gpus=gpu_counts)
def test_any_speeds_and_sizes_give_the_optimum_while_the_table_is_small(jobs: tuple[JobDemand, ...], gpus: int) -> None:
    workers = share(jobs, gpus)
    running = [job for job in jobs if workers[job.name]]
    assert worth(running, workers) == pytest.approx(best_worth(running, gpus)) if running else True


@given(jobs=demands(sizes=(1, 2)), gpus=gpu_counts, data=st.data())
def test_a_settled_past_costs_a_hundredth_at_most(jobs: tuple[JobDemand, ...], gpus: int, data: st.DataObject) -> None:
    """Jobs that have long kept sizes that somebody else chose."""
    sizes = {job.name: data.draw(st.integers(0, job.max)) for job in jobs}
    settled = tuple(replace(job, workers=sizes[job.name], wanted=sizes[job.name], age_seconds=1e7) for job in jobs)
    workers = share(settled, gpus)
    running = [job for job in settled if workers[job.name]]
    assert not running or worth(running, workers) >= 0.99 * best_worth(running, gpus) - 1e-6


@given(jobs=demands(sizes=(1, 2)), gpus=gpu_counts, seed=st.randoms(use_true_random=False))
def test_the_order_of_the_jobs_does_not_matter(jobs: tuple[JobDemand, ...], gpus: int, seed: random.Random) -> None:
    assert share(tuple(seed.sample(jobs, len(jobs))), gpus) == share(jobs, gpus)


@given(jobs=demands(sizes=(1, 2)), rooms=st.lists(gpu_counts, min_size=1, max_size=4))
@settings(max_examples=examples(50))
def test_what_does_not_change_from_outside_comes_to_rest(jobs: tuple[JobDemand, ...], rooms: list[int]) -> None:
    """After any past: with the same GPUs for hours, each job gains or loses once more at most, and then never."""
    turns = list(played(jobs, [*rooms, *[rooms[-1]] * 200]))
    settled = [tuple(job.wanted for job in jobs) for jobs in turns[len(rooms) :]]
    assert len(list(itertools.groupby(settled))) <= 3
    assert settled[-1] == settled[100]


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_noise_in_what_is_measured_moves_no_workers_for_ever(noise: float) -> None:
    """A day of two equal jobs, and of three that differ, decided each half minute: ever fewer changes."""
    for jobs in (
        (demand("team/a"), demand("team/b")),
        (demand("team/a", speeds=speeds(8, serial=0.1)), demand("team/b"), demand("team/c", min=2)),
    ):
        turns = list(played(jobs, [8] * 2880, noise=noise, seed=5))
        first, second = resizes(turns[:1440]), resizes(turns) - resizes(turns[:1440])
        assert resizes(turns) <= 2880 // 16
        assert second <= max(4, first)


def test_the_first_to_come_gives_up_what_it_holds() -> None:
    alone = (demand("team/a"),)
    first = list(played(alone, [8] * 100))[-1]
    assert first[0].workers == 8
    both = list(played((*first, demand("team/b")), [8] * 20))  # ten minutes
    assert {job.workers for job in both[-1]} == {4}


def test_equal_jobs_with_perfect_speeds_get_equal_parts() -> None:
    jobs = tuple(demand(f"team/{name}", speeds=speeds(8, serial=0.0)) for name in "abcd")
    assert share(jobs, 8) == {job.name: 2 for job in jobs}


def test_twice_the_weight_gets_more() -> None:
    heavy, light = demand("team/a", weight=2.0), demand("team/b")
    workers = share((heavy, light), 8)
    assert workers["team/a"] > workers["team/b"] >= 1


def test_jobs_that_train_keep_their_min_when_there_is_no_room_for_all() -> None:
    old, new = demand("team/z", min=4, workers=4, wanted=4, age_seconds=60.0), demand("team/a", min=4, weight=9.0)
    assert share((new, old), 6) == {"team/z": 6, "team/a": 0}


def test_a_transfer_that_would_not_pay_back_is_left_alone() -> None:
    """Both are resized every few seconds by others, so nothing lasts long enough."""
    restless = {"age_seconds": 600.0, "resizes": 200, "since_resize_seconds": 3.0}
    one = demand("team/a", workers=5, wanted=5, **restless)
    two = demand("team/b", workers=3, wanted=3, **restless)
    assert share((one, two), 8) == {"team/a": 5, "team/b": 3}


def test_twenty_jobs_on_a_thousand_gpus_are_as_good_as_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    jobs = tuple(
        demand(
            f"team/{number:02}",
            max=200,
            gpus=rng.choice((1, 2, 8)),
            speeds=Speeds(tuple(speed * (0.7 if 1 < k < 9 else 1) for k, speed in enumerate(speeds(200, serial=0.01)))),
        )
        for number in range(20)
    )
    quick = worth(jobs, share(jobs, 1000))
    monkeypatch.setattr(division, "MOST_WORK", float("inf"))
    assert quick >= 0.99 * worth(jobs, share(jobs, 1000))


def test_less_than_the_least_gain_moves_nobody() -> None:
    settled = {"age_seconds": 1e6, "speeds": speeds(8, serial=0.001)}
    one, two = demand("team/a", workers=5, wanted=5, **settled), demand("team/b", workers=3, wanted=3, **settled)
    even, uneven = {"team/a": 4, "team/b": 4}, {"team/a": 5, "team/b": 3}
    assert worth((one, two), uneven) < worth((one, two), even) < (1 + LEAST_GAIN) * worth((one, two), uneven)
    assert share((one, two), 8) == uneven
