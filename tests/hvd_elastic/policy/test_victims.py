"""Who gives GPUs back: least lost, never below min, whole nodes first, and not the same job twice in a row."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.victims import PlacedJob, victims, victims_anywhere
from tests.hvd_elastic.policy.demands import any_speeds, demand, speeds

NODES = ("node-a", "node-b", "node-c")


@st.composite
def placed_jobs(draw: st.DrawFn) -> tuple[PlacedJob, ...]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        nodes = tuple(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=4)))
        size = len(nodes)
        job = demand(
            f"team/{number}",
            min=draw(st.integers(1, size)),
            max=size,
            workers=size,
            wanted=size,
            gpus=draw(st.sampled_from((1, 2))),
            speeds=draw(any_speeds(size)),
            since_resize_seconds=draw(st.sampled_from((5.0, 1e6))),
        )
        made.append(PlacedJob(demand=job, nodes=nodes))
    return tuple(made)


def freed(jobs: tuple[PlacedJob, ...], taken: dict[str, int]) -> Counter[str]:
    gone: Counter[str] = Counter()
    for job in jobs:
        for node in job.nodes[len(job.nodes) - taken.get(job.demand.name, 0) :]:
            gone[node] += job.demand.gpus
    return gone


def all_choices(jobs: tuple[PlacedJob, ...]) -> list[dict[str, int]]:
    ranges = (range(max(0, len(job.nodes) - job.demand.min) + 1) for job in jobs)
    return [dict(zip([job.demand.name for job in jobs], each, strict=True)) for each in itertools.product(*ranges)]


@given(jobs=placed_jobs(), needed=st.integers(1, 6), free=st.fixed_dictionaries({n: st.integers(0, 2) for n in NODES}))
def test_one_node_has_room_exactly_if_that_can_be(
    jobs: tuple[PlacedJob, ...], needed: int, free: dict[str, int]
) -> None:
    def makes_room(taken: dict[str, int]) -> bool:
        return any(free[node] + freed(jobs, taken)[node] >= needed for node in NODES)

    taken = victims(jobs, needed, free)
    if taken is None:
        assert not any(map(makes_room, all_choices(jobs)))
        return
    assert makes_room(taken)
    for job in jobs:
        assert len(job.nodes) - taken.get(job.demand.name, 0) >= min(job.demand.min, len(job.nodes))


@given(jobs=placed_jobs(), needed=st.integers(1, 6))
def test_anywhere_gives_as_much_as_is_needed_or_all_there_is(jobs: tuple[PlacedJob, ...], needed: int) -> None:
    taken = victims_anywhere(jobs, needed)
    most = max(sum(freed(jobs, each).values()) for each in all_choices(jobs))
    assert sum(freed(jobs, taken).values()) >= min(needed, most)


def test_the_job_that_loses_least_gives() -> None:
    saturated = PlacedJob(demand=demand("team/a", speeds=speeds(8, serial=0.5), workers=4), nodes=("node-a",) * 4)
    scaling = PlacedJob(demand=demand("team/b", speeds=speeds(8, serial=0.0), workers=4), nodes=("node-a",) * 4)
    assert victims((saturated, scaling), 2, {"node-a": 0}) == {"team/a": 2}
    assert victims_anywhere((saturated, scaling), 2) == {"team/a": 2}


def test_what_is_idle_takes_nobody() -> None:
    job = PlacedJob(demand=demand(workers=2), nodes=("node-a", "node-a"))
    assert victims((job,), 2, {"node-a": 0, "node-b": 2}) == {}


def test_a_job_that_has_just_changed_gives_last() -> None:
    shaken = demand("team/a", speeds=speeds(8, serial=0.5), workers=4, since_resize_seconds=5.0)
    calm = demand("team/b", speeds=speeds(8, serial=0.0), workers=4)
    jobs = tuple(PlacedJob(demand=one, nodes=("node-a",) * 4) for one in (shaken, calm))
    assert victims(jobs, 3, {"node-a": 0}) == {"team/b": 3}
    assert victims(jobs, 4, {"node-a": 0}) == {"team/b": 3, "team/a": 1}


def test_of_equal_losses_the_emptier_node_is_emptied() -> None:
    alone = PlacedJob(demand=demand("team/b", workers=3), nodes=("node-a", "node-a", "node-b"))
    crowded = PlacedJob(demand=demand("team/a", workers=3), nodes=("node-a", "node-a", "node-a"))
    assert victims_anywhere((crowded, alone), 1) == {"team/b": 1}


def test_a_pod_that_needs_a_whole_node_gets_one_node_and_not_two_halves() -> None:
    spread = PlacedJob(demand=demand("team/a", workers=4), nodes=("node-a", "node-b", "node-a", "node-b"))
    packed = PlacedJob(demand=demand("team/b", max=3, min=1, speeds=speeds(3), workers=3), nodes=("node-c",) * 3)
    assert victims((spread, packed), 2, {"node-a": 0, "node-b": 0, "node-c": 0}) == {"team/b": 2}
