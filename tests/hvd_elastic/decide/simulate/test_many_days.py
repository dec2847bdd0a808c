"""A year takes the room of some days: nothing that happens is kept."""

import gc
import tracemalloc
from dataclasses import replace

import pytest

from hvd_elastic.decide.simulate import outcome
from hvd_elastic.decide.simulate.autoscaling.inference_reserve import ReserveRule
from hvd_elastic.decide.simulate.day import NodeGroup
from hvd_elastic.decide.simulate.engine import inference_record
from hvd_elastic.decide.simulate.inputs.made_up_day import MadeUpCluster, made_up_day
from hvd_elastic.decide.simulate.simulation import Share, simulate
from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind
from hvd_elastic.decide.simulate.workload import Way
from hvd_elastic.policy.sharing import share
from tests.hvd_elastic.decide.simulate.made_days import STALLS, job

JOBS = tuple(job(name, max=4, checkpoint_every_seconds=1800.0, samples=samples)
             for name, samples in (("a", 1e9), ("b", 2e9), ("c", float("inf"))))  # fmt: skip
"""Two of them have a length that they do not reach, so that each change of size sets another end."""

BUFFER = ReserveRule(quantile=0.95, buffer=True)


def most_bytes(days: float, way: Way, shared: Share | None, rule: ReserveRule | None) -> int:
    """That are held as a day ends."""
    cluster = MadeUpCluster(nodes=3, spot_nodes=2, kind=NodeKind(gpus=4), spot_hours=1.0, bursts=48, hours=24.0 * days)
    held: list[int] = []

    def look(part: float) -> None:
        if part * days > len(held):
            gc.collect()  # it empties the free lists of the interpreter, too
            held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        buying = replace(made_up_day(1, cluster), node_group=NodeGroup(gpus=4, most=2) if rule else None)
        simulate(buying, JOBS, way, STALLS, share=shared, reserve=rule, progress=look)
        return max(held)
    finally:
        tracemalloc.stop()


def test_what_is_given_to_a_job_keeps_no_second_history_of_its_size() -> None:
    gc.collect()
    before, kept = histories(), list[int]()

    def look(_part: float) -> None:
        if not kept:
            kept.append(histories() - before)

    simulate(made_up_day(1, MadeUpCluster(hours=1.0)), JOBS, Way.OURS, STALLS, progress=look)
    assert kept == [len(JOBS)]


def histories() -> int:
    """How many there are in this process."""
    return sum(type(each) is outcome.SizeHistory for each in gc.get_objects())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("way", "shared", "rule"),
    [*((way, None, None) for way in Way), (Way.OURS, share, None), (Way.OURS, share, BUFFER)],
)
def test_many_days_take_the_room_of_a_few(
    monkeypatch: pytest.MonkeyPatch, way: Way, shared: Share | None, rule: ReserveRule | None
) -> None:
    monkeypatch.setattr(outcome, "MOST_CHANGES", 20)
    monkeypatch.setattr(inference_record, "MOST_EXACT", 20)
    most_bytes(0.25, way, shared, rule)
    few = 3  # the reserve's history is of two
    assert most_bytes(few + 4, way, shared, rule) - most_bytes(few, way, shared, rule) < 8 * 1024
