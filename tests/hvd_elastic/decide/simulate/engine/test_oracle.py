"""What inference leaves, and the most that jobs can make of it."""

import gc
import tracemalloc
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.day import NodeLife
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.idle_capacity import IdleStretch, best_division, idle_stretches
from hvd_elastic.decide.simulate.engine.oracle import Oracle
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.workload import SimulatedJob, Way
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job, jobs, serving
from tests.properties import examples


def test_what_is_idle_follows_inference_and_the_nodes() -> None:
    nodes: list[int | NodeLife] = [2, NodeLife(name="spot", gpus=4, since=50, until=300, notice_seconds=20)]
    cluster = ClusterDay(day(nodes=nodes, pods=(serving(100, 49, gpus=2),)), STALLS)
    idle = [(stretch.begin, stretch.end, stretch.gpus) for stretch in idle_stretches(cluster)]
    # it is held from the pod's binding on; the node is closed when its notice comes
    assert idle == [(0, 50, 2), (50, 100, 6), (100, 150, 4), (150, 280, 6), (280, 1000, 2)]
    assert cluster.waits.waiting().max == STALLS.bind


@settings(max_examples=examples(60))
@given(tasks=st.lists(jobs(gpus=(1,)), max_size=3), gpus=st.integers(0, 20))
def test_a_division_leaves_nothing_that_a_job_could_use(tasks: list[SimulatedJob], gpus: int) -> None:
    division = best_division(tasks, gpus)
    left = gpus - sum(division)
    assert left >= 0
    for task, workers in zip(tasks, division, strict=True):
        assert workers == 0 or task.min <= workers <= task.max
        assert not left or workers in {0, task.max}
        assert workers or task.min > left


@settings(max_examples=examples(40))
@given(tasks=st.lists(jobs(gpus=(1,)), min_size=1, max_size=2), spare=st.integers(0, 6))
def test_no_other_division_gains_more(tasks: list[SimulatedJob], spare: int) -> None:
    """Where all mins fit, and speeds are concave, as drawn."""
    gpus = sum(task.min for task in tasks) + spare

    def gain(division: tuple[int, ...]) -> float:
        return sum(task.speeds[n] / task.speeds[task.max] for task, n in zip(tasks, division, strict=True))

    sizes = product(*(range(task.min, task.max + 1) for task in tasks))
    best = max(gain(division) for division in sizes if sum(division) <= gpus)
    assert gain(best_division(tasks, gpus)) == pytest.approx(best)


@settings(max_examples=examples(40))
@given(
    tasks=st.lists(jobs(gpus=(1, 2)), min_size=1, max_size=2),
    spare=st.integers(0, 6),
    allowed=st.sets(st.integers(1, 7)),
)
def test_no_other_division_into_allowed_sizes_gains_more(
    tasks: list[SimulatedJob], spare: int, allowed: set[int]
) -> None:
    tasks = [replace(task, sizes=tuple({task.min} | {n for n in allowed if n > task.min})) for task in tasks]
    gpus = sum(task.min * task.gpus for task in tasks) + spare

    def gain(division: tuple[int, ...]) -> float:
        return sum(task.speeds[n] / task.speeds[task.max] for task, n in zip(tasks, division, strict=True))

    sizes = product(*([n for n in task.sizes if n <= task.max] for task in tasks))
    fitting = (one for one in sizes if sum(n * task.gpus for n, task in zip(one, tasks, strict=True)) <= gpus)
    found = best_division(tasks, gpus)
    assert all(n in task.sizes for n, task in zip(found, tasks, strict=True))
    assert gain(found) == pytest.approx(max(map(gain, fitting)))


def test_the_oracle_completes_a_job_in_the_least_time() -> None:
    task = job("job", max=4, samples=1000, begins=10)
    (outcome,) = simulate(day(nodes=[2], pods=(serving(20, 29),)), (task,), Way.ORACLE, STALLS).jobs
    # 20 a second from 10 to 20, 10 a second while inference has a GPU (20 to 50), then 20 again
    assert outcome.completed == pytest.approx(50 + 25)
    assert outcome.samples == 1000
    assert outcome.useful == outcome.given == pytest.approx(20 + 30 + 50)


def test_what_is_given_to_a_job_ends_with_its_work() -> None:
    task = job("job", max=2, samples=100)
    (outcome,) = simulate(day(nodes=[2]), (task,), Way.OURS, STALLS).jobs
    assert outcome.completed is not None
    assert outcome.given == pytest.approx(2 * outcome.completed)


def test_two_jobs_share_by_marginal_gain() -> None:
    small, large = job("small", max=2, weight=3.0), job("large", max=4)
    assert best_division([small, large], 4) == (2, 2)
    assert best_division([small, large], 1) == (1, 0)


def test_a_division_that_is_kept_takes_four_bytes_a_job() -> None:
    tasks = [job(str(number)) for number in range(600)]
    oracle = Oracle(tasks, keeps_sizes=False)
    oracle.use(IdleStretch(begin=0, end=1, gpus=0))
    tracemalloc.start()
    try:
        for gpus in range(1, 101):
            oracle.use(IdleStretch(begin=gpus, end=gpus + 1, gpus=gpus))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Beside them each job has two sums.
    assert held < 100 * (len(tasks) * 4 + 300) + len(tasks) * 100
