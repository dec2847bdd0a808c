"""What one turn decides, and what a day of turns comes to."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.decide.autoscale.decision import AutoscalerMemory, SharedCluster, decide
from hvd_elastic.decide.autoscale.shared_cluster import WHOLE_NODE, Placement, counted
from tests.hvd_elastic.decide.autoscale.model_cluster import START, ModelCluster, job, node, pod
from tests.properties import examples


def settled(cluster: ModelCluster, turns: int = 60, seconds: float = 10.0) -> ModelCluster:
    for _ in range(turns):
        cluster.turn(seconds)
    return cluster


def test_no_pod_is_asked_for_that_has_no_room() -> None:
    cluster = ModelCluster(jobs=[job("team/a")], nodes=[node("n1", 3)])
    (decision,) = cluster.turn()
    assert (decision.workers, decision.reason) == (3, "5 workers had no room on any node")
    assert all(worker.node for worker in settled(cluster, 3).workers)


def test_workers_of_many_gpus_need_a_node_that_has_them_together() -> None:
    cluster = ModelCluster(jobs=[job("team/a", gpus=4, asked=1)], nodes=[node("n1", 6), node("n2", 6)])
    assert settled(cluster).sizes() == {"team/a": 2}
    assert cluster.jobs[0].asked == 2


def test_gpus_of_one_resource_are_no_room_for_jobs_of_another() -> None:
    """Though a node has both, as one does that is cut into MIG instances in part."""
    mig = "nvidia.com/mig-1g.10gb"
    cluster = ModelCluster(
        jobs=[job("team/a"), job("team/b", resource=mig)],
        nodes=[node("n1", 3), node("n1", 6, resource=mig)],
        inference=[pod("chat", node="n1", gpus=2, resource=mig)],
    )
    decided, _ = decide(cluster.state(), AutoscalerMemory(), START)
    assert {one.job.name: one.workers for one in decided} == {"team/a": 3, "team/b": 4}


def test_a_pod_that_cannot_be_read_has_all_that_its_node_has_of_every_resource() -> None:
    nodes = (node("n1", 2), node("n1", 6, resource="amd.com/gpu"), node("n2", 1), node("n2", 1, resource="amd.com/gpu"))
    held = pod("unread", node="n1", gpus=WHOLE_NODE, resource="")
    jobs = (job("team/a"), job("team/b", resource="amd.com/gpu"))
    state = SharedCluster(jobs=jobs, nodes=nodes, pods=tuple(counted([held], nodes)))
    decided, _ = decide(state, AutoscalerMemory(), START)
    assert {one.job.name: one.workers for one in decided} == {"team/a": 1, "team/b": 1}


def test_a_job_that_buys_asks_for_all_until_its_budget_is_held() -> None:
    rich, poor = job("team/a", buy=True), job("team/a", buy=True, budget_gpu_seconds=0.0)
    for one, asked in ((rich, 8), (poor, 3)):
        assert settled(ModelCluster(jobs=[one], nodes=[node("n1", 3)])).jobs[0].asked == asked


def test_two_equal_jobs_share_equally_and_then_nothing_changes() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a"), job("team/b")], nodes=[node("n1")]))
    assert cluster.sizes() == {"team/a": 4, "team/b": 4}
    before = len(cluster.changes)
    assert len(settled(cluster, 1440, seconds=60.0).changes) == before


def test_jobs_of_which_nothing_is_known_share_equally() -> None:
    silent = ModelCluster(jobs=[job("team/a"), job("team/b")], nodes=[node("n1")], speed=lambda _name, _workers: 0.0)
    assert settled(silent, 200).sizes() == {"team/a": 4, "team/b": 4}


def test_who_came_first_gives_up_what_it_hoards() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a")], nodes=[node("n1")]), 60)
    assert cluster.sizes() == {"team/a": 8}
    cluster.jobs.append(job("team/b"))
    assert settled(cluster, 60).sizes() == {"team/a": 4, "team/b": 4}


def test_the_job_that_scales_better_gets_more() -> None:
    def speed(name: str, workers: int) -> float:
        return 10.0 * workers / (1 + (0.5 if name == "team/a" else 0.01) * workers)

    cluster = settled(ModelCluster(jobs=[job("team/a"), job("team/b")], nodes=[node("n1")], speed=speed), 400)
    assert cluster.sizes()["team/b"] > cluster.sizes()["team/a"] >= 1


def test_inference_that_waits_gets_room_from_training_and_training_gets_it_back() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a"), job("team/b")], nodes=[node("n1")]))
    cluster.set_inference(4)
    assert sum(settled(cluster, 12).sizes().values()) == 4
    assert min(cluster.sizes().values()) >= 1
    cluster.set_inference(0)
    cluster.memory = AutoscalerMemory(jobs=cluster.memory.jobs)
    assert sum(settled(cluster, 60).sizes().values()) == 8


def test_where_the_scheduler_has_chosen_a_victim_no_other_job_gives() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a"), job("team/b")], nodes=[node("n1")]))
    last = next(place for place, one in enumerate(cluster.workers) if (one.job, one.index) == ("team/a", 3))
    cluster.workers[last] = replace(cluster.workers[last], leaving=True)
    coming = pod("chat", nominated=True, asked=cluster.now)
    state = replace(cluster.state(), pods=(*cluster.state().pods, coming))
    decided, _ = decide(state, cluster.memory, cluster.now)
    assert [(one.job.name, one.workers) for one in decided] == [("team/a", 3)]


def test_a_pod_that_training_cannot_help_takes_nothing_from_it() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a")], nodes=[node("n1")]))
    far = replace(pod("far"), placement=Placement(selector={"zone": "b"}, terms=(), tolerations=()))
    large, old = pod("large", gpus=16), pod("old", asked=cluster.now - 3600)
    for waiting in (far, large, old):
        state = replace(cluster.state(), pods=(*cluster.state().pods, waiting))
        assert decide(state, cluster.memory, cluster.now)[0] == ()


def test_the_reserve_is_there_before_the_next_burst() -> None:
    """Bursts of two GPUs every ten minutes: after some hours hardly one evicts a worker."""
    cluster = ModelCluster(jobs=[job("team/a"), job("team/b")], nodes=[node("n1")])
    evictions = []
    for _ in range(48):
        cluster.set_inference(0)
        settled(cluster, 30)
        cluster.set_inference(2)
        settled(cluster, 30)
        evictions.append(cluster.evictions)
    assert evictions[-1] - evictions[23] <= (evictions[3]) * 3
    assert evictions[-1] - evictions[23] < 24


def test_a_persons_number_is_the_most_until_another_is_set() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a", asked=1, ceiling=1), job("team/b")], nodes=[node("n1")]))
    assert cluster.sizes() == {"team/a": 1, "team/b": 7}
    cluster.jobs[0] = replace(cluster.jobs[0], ceiling=None)
    assert settled(cluster, 100).sizes() == {"team/a": 4, "team/b": 4}


def test_a_cooldown_holds_what_is_not_asked_back() -> None:
    """A change of a moment ago is left alone, unless inference needs the GPUs."""
    note = ScalingNote(unix=START, before=8, workers=2, reason="")
    cooling = job("team/a", asked=2, note=note, cooldown_seconds=300.0)
    cluster = settled(ModelCluster(jobs=[cooling], nodes=[node("n1")]), 5)
    assert cluster.changes == []
    cluster.set_inference(7)
    assert [one.workers for one in cluster.turn()] == [1]


def test_jobs_of_other_nodes_are_another_matter() -> None:
    def only(zone: str) -> Placement:
        return Placement(selector={"zone": zone}, terms=(), tolerations=())

    jobs = [job("team/a", placement=only("a")), job("team/b", placement=only("b"))]
    cluster = settled(ModelCluster(jobs=jobs, nodes=[node("n1", 6, zone="a"), node("n2", 2, zone="b")]))
    assert cluster.sizes() == {"team/a": 6, "team/b": 2}


@given(
    jobs=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from((1, 2))), min_size=1, max_size=3),
    nodes=st.lists(st.integers(1, 8), max_size=3),
    inference=st.lists(st.integers(0, 12), min_size=1, max_size=8),
)
@settings(max_examples=examples(60))
def test_bounds_hold_whatever_happens(jobs: list[tuple[int, int, int]], nodes: list[int], inference: list[int]) -> None:
    cluster = ModelCluster(
        jobs=[
            job(f"team/{n}", min=low, max=low + more, asked=low + more, gpus=gpus)
            for n, (low, more, gpus) in enumerate(jobs)
        ],
        nodes=[node(f"n{n}", gpus) for n, gpus in enumerate(nodes)],
    )
    for gpus in inference:
        cluster.set_inference(gpus)
        for decision in (*cluster.turn(), *cluster.turn()):
            assert decision.job.min <= decision.workers <= decision.job.max
            assert decision.reason


def test_surplus_workers_are_given_back_and_asked_for_again_when_the_next_size_has_room() -> None:
    cluster = settled(ModelCluster(jobs=[job("team/a", sizes=(1, 2, 4, 8))], nodes=[node("n1")]))
    assert cluster.jobs[0].asked == 8
    cluster.set_inference(1)
    settled(cluster, 12)
    assert cluster.jobs[0].asked == 4
    assert "it does not train with 7 workers, and its next size has no room" in {one.reason for one in cluster.changes}
    cluster.set_inference(0)
    cluster.memory = AutoscalerMemory(jobs=cluster.memory.jobs)
    assert settled(cluster, 60).sizes() == {"team/a": 8}


@given(
    sizes=st.sets(st.integers(1, 8), min_size=1, max_size=4),
    nodes=st.lists(st.integers(1, 8), max_size=3),
    inference=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    gpus=st.sampled_from((1, 2)),
    buy=st.booleans(),
)
@settings(max_examples=examples(60))
def test_only_allowed_sizes_are_asked_for(
    sizes: set[int], nodes: list[int], inference: list[int], gpus: int, buy: bool
) -> None:
    picky = job("team/a", sizes=tuple(sizes), min=min(sizes), max=max(sizes), asked=max(sizes), gpus=gpus, buy=buy)
    cluster = ModelCluster(jobs=[picky, job("team/b")], nodes=[node(f"n{n}", size) for n, size in enumerate(nodes)])
    for count in inference:
        cluster.set_inference(count)
        for decision in (*cluster.turn(), *cluster.turn()):
            assert decision.workers in (sizes if decision.job.name == "team/a" else range(1, 9))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_day_of_constant_demand_is_a_quiet_day(noise: float) -> None:
    rng = random.Random(2)

    def speed(name: str, workers: int) -> float:
        serial = {"team/a": 0.3, "team/b": 0.05, "team/c": 0.02}[name]
        return rng.uniform(1 - noise, 1 + noise) * 10.0 / (serial + (1 - serial) / workers)

    jobs = [job("team/a"), job("team/b", weight=2.0), job("team/c", min=2)]
    cluster = ModelCluster(jobs=jobs, nodes=[node("n1"), node("n2", 4)], speed=speed)
    cluster.set_inference(2)
    settled(cluster, 240, seconds=60.0)
    morning = len(cluster.changes)
    settled(cluster, 1200, seconds=60.0)
    assert len(cluster.changes) - morning <= (0 if not noise else 12)
    assert cluster.evictions == 0
    assert sum(cluster.sizes().values()) == 10


def test_nothing_known_changes_nothing() -> None:
    empty = SharedCluster(jobs=(), nodes=(), pods=())
    assert decide(empty, AutoscalerMemory(), START)[0] == ()
