"""Jobs that share by a function of their demands."""

from collections.abc import Mapping

from hvd_elastic.decide.simulate.day import NodeLife
from hvd_elastic.decide.simulate.engine.capacity_sharing import PERIOD_SECONDS
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.workload import Way
from hvd_elastic.policy.job_demand import JobDemand
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job, serving


class Recorder:
    """Gives each job a part by its place, and keeps what it was asked."""

    def __init__(self, *parts: int) -> None:
        self.parts = parts
        self.asked: list[tuple[tuple[JobDemand, ...], int]] = []

    def __call__(self, demands: tuple[JobDemand, ...], gpus: int) -> Mapping[str, int]:
        self.asked.append((demands, gpus))
        return {demand.name: part for demand, part in zip(demands, self.parts, strict=False)}


def test_each_job_gets_what_the_share_says() -> None:
    share = Recorder(3, 1)
    outcome = simulate(day(nodes=[4]), (job("a"), job("b")), Way.OURS, STALLS, share=share)
    assert [[*one.sizes.changes()][-1].workers for one in outcome.jobs] == [3, 1]
    assert outcome.goodput > 0.98


def test_the_share_is_asked_on_a_period_and_when_capacity_or_jobs_change() -> None:
    share = Recorder(1)
    nodes: list[int | NodeLife] = [2, NodeLife(name="late", gpus=2, since=100)]
    task = job("a", samples=500)
    simulate(day(nodes=nodes, pods=(serving(10.5, 20),), seconds=130), (task,), Way.OURS, STALLS, share=share)
    assert [gpus for _, gpus in share.asked][:1] == [2]
    assert {1, 2} == {gpus for _, gpus in share.asked}, "nobody is asked once the job has ended"
    assert len(share.asked) >= 130 // PERIOD_SECONDS


def test_a_job_that_is_to_have_less_gives_it_back_by_a_drain() -> None:
    def late(demands: tuple[JobDemand, ...], _gpus: int) -> Mapping[str, int]:
        old = demands[0].age_seconds > 100
        return {"a": 1 if old else 3, "b": 3 if old else 0}

    tasks = (job("a", start=3), job("b", start=3))
    outcome = simulate(day(nodes=[6]), tasks, Way.OURS, STALLS, share=late)
    first, second = outcome.jobs
    assert [size.workers for size in first.sizes.changes()] == [0, 3, 1]
    assert [size.workers for size in second.sizes.changes()] == [0, 3]
    assert (first.repeated, first.pauses, first.paused_seconds) == (0, 1, STALLS.shrink)


def test_a_demand_says_what_the_job_is_and_does() -> None:
    share = Recorder(2)
    task = job("a", start=2, min=1, max=4, weight=2.0, buy=True)
    simulate(day(nodes=[4]), (task,), Way.OURS, STALLS, share=share)
    (first,), (last,) = share.asked[0][0], share.asked[-1][0]
    assert (first.workers, first.wanted, first.age_seconds) == (0, 4, 0.0)
    assert (last.workers, last.wanted, last.weight, last.buy) == (2, 2, 2.0, True)
    assert last.age_seconds > 800
    assert (last.stall_grow_seconds, last.stall_shrink_seconds) == (STALLS.grow, STALLS.shrink)
