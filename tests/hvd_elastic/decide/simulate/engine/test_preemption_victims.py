"""Whom kube-scheduler would evict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.engine.node_table import NodeTable
from hvd_elastic.decide.simulate.engine.preemption_victims import victims_on
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPod


def worker(bound: float, gpus: int = 1, index: int = 0) -> WorkerPod:
    return WorkerPod(gpus=gpus, created=0.0, bound=bound, job=0, index=index)


def table(*nodes: list[WorkerPod], gpus: int = 4) -> NodeTable:
    made = NodeTable()
    for number, workers in enumerate(nodes):
        made.add(number, gpus)
        for one in workers:
            made.bind(one, number, one.bound)
    return made


def test_the_last_to_start_goes_first() -> None:
    first, last = worker(1.0), worker(2.0)
    assert victims_on(2, [last, first], 1) == (last,)


def test_a_large_worker_that_cannot_stay_makes_room_for_a_later_small_one_to_stay() -> None:
    large, small = worker(1.0, gpus=2), worker(2.0)
    assert victims_on(3, [large, small], 2) == (large,)


def test_nobody_is_evicted_in_vain() -> None:
    assert victims_on(1, [worker(1.0)], 2) == ()


@given(
    gpus=st.lists(st.integers(1, 4), max_size=6),
    spare=st.integers(0, 3),
    wanted=st.integers(1, 8),
)
def test_victims_make_room_and_none_of_them_could_stay(gpus: list[int], spare: int, wanted: int) -> None:
    workers = [worker(float(number), size, number) for number, size in enumerate(gpus)]
    room = sum(gpus) + spare
    victims = victims_on(room, workers, wanted)
    free = spare + sum(victim.gpus for victim in victims)
    if room < wanted:
        assert victims == ()
        return
    assert free >= wanted
    assert all(free - victim.gpus < wanted for victim in victims)


@pytest.mark.parametrize(
    ("nodes", "wanted", "chosen"),
    [
        ([[(1, 2), (2, 2)], [(1, 4)]], 4, 1),  # fewest victims
        ([[(1, 4)], [(3, 4)], [(2, 4)]], 1, 1),  # then the latest start
        ([[(5, 2), (1, 2)], [(2, 2), (3, 2)]], 4, 1),  # of the one of them that started first
        ([[(1, 4)], [(1, 4)]], 2, 0),  # then the first node
    ],
)
def test_the_node_is_picked_as_kube_scheduler_picks_it(
    nodes: list[list[tuple[int, int]]], wanted: int, chosen: int
) -> None:
    made = table(*([worker(start, gpus, index) for index, (start, gpus) in enumerate(workers)] for workers in nodes))
    found = made.preemptible(wanted)
    assert found is not None
    assert found[0] == chosen


def test_a_node_that_changed_is_judged_anew() -> None:
    early, late = worker(1.0, 4), worker(2.0, 4)
    made = table([early], [late])
    assert made.preemptible(1) == (1, (late,))
    made.release(late)
    made.bind(late, 1, 0.5)
    assert made.preemptible(1) == (0, (early,))
