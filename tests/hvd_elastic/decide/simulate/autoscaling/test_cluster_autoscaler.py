"""For whom a cluster autoscaler buys nodes, and how long they stay."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hvd_elastic.decide.simulate.autoscaling.cluster_autoscaler import YOUNG_SECONDS, ClusterAutoscaler
from hvd_elastic.decide.simulate.autoscaling.look_schedule import SCAN_SECONDS, LookSchedule
from hvd_elastic.decide.simulate.day import InferencePod, NodeGroup
from hvd_elastic.decide.simulate.engine.capacity_sharing import CapacitySharing
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.decide.simulate.simulation import Share, simulate
from hvd_elastic.decide.simulate.ways.elastic_way import ElasticWay
from hvd_elastic.decide.simulate.workload import SimulatedJob, Way
from hvd_elastic.policy.job_demand import JobDemand
from hvd_elastic.policy.sharing import share
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job, serving

GROUP = NodeGroup(gpus=4, most=3)
CALL_SECONDS = YOUNG_SECONDS + 2 * SCAN_SECONDS
"""At most from the moment in which a pod has no room until a node is called for."""


def play(
    nodes: Sequence[int],
    *pods: InferencePod,
    jobs: Sequence[SimulatedJob] = (),
    way: Way = Way.OURS,
    group: NodeGroup | None = GROUP,
    seconds: float = 3000.0,
    shared: Share | None = None,
) -> DayOutcome:
    known = replace(day(nodes=nodes, pods=pods, seconds=seconds), node_group=group)
    return simulate(known, jobs, way, STALLS, share=shared)


def workers(outcome: DayOutcome) -> int:
    """Of the first job, as the day ends."""
    return [*outcome.jobs[0].sizes.changes()][-1].workers


def test_inference_without_room_waits_for_a_node_and_without_a_group_for_ever() -> None:
    pods = serving(100), serving(103)
    assert play([1], *pods, group=None).inference.never == 1
    bought = play([1], *pods)
    least = YOUNG_SECONDS + GROUP.delay_seconds + STALLS.bind
    assert bought.inference.never == 0
    assert least <= bought.inference.max <= least + 2 * SCAN_SECONDS
    assert play([1], *pods, group=replace(GROUP, delay_seconds=60.0)).inference.max == pytest.approx(
        bought.inference.max - 150
    )


def test_a_node_is_taken_away_once_it_was_unneeded_for_long_enough() -> None:
    outcome = play([1], serving(100), serving(103, 300))
    stays = GROUP.delay_seconds + STALLS.bind + 300 + GROUP.unneeded_seconds
    assert GROUP.gpus * stays <= outcome.bought <= GROUP.gpus * (stays + SCAN_SECONDS)
    longer = play([1], serving(100), serving(103, 300), serving(1200, 300))
    assert longer.bought > outcome.bought + GROUP.gpus * 300, "the pod came while it was there still"


def test_chunks_of_a_buffer_have_a_node_bought_at_once_and_keep_it() -> None:
    cluster = ClusterDay(day(nodes=[1], seconds=6000.0), STALLS)
    buyer = ClusterAutoscaler(cluster, GROUP, shared=False)
    LookSchedule(cluster, [buyer.look]).begin()
    nodes: list[int] = []

    def set_chunks(now: float) -> None:
        nodes.append(len(cluster.table.rooms))
        cluster.chunks = 2 if now < 4000 else 1

    for second in (100.0, 4000.0, 5000.0):
        cluster.at(second, set_chunks)
    list(cluster.moments(cluster.seconds))
    assert nodes == [1, 2, 1]
    there = 4000 - 100 + GROUP.unneeded_seconds
    assert GROUP.gpus * (there - SCAN_SECONDS) <= buyer.bought(cluster.seconds) <= GROUP.gpus * (there + SCAN_SECONDS)


def test_what_a_node_on_its_way_has_room_for_calls_for_no_other() -> None:
    few = play([1], serving(100), *(serving(103.0 + 40 * number) for number in range(4)))
    assert few.bought <= GROUP.gpus * 3000
    assert few.inference.never == 0
    more = play([1], serving(100), *(serving(103.0 + 40 * number) for number in range(5)))
    assert more.bought > few.bought + GROUP.gpus * 2000


def test_for_a_pod_that_waits_for_a_victim_nothing_is_bought() -> None:
    """The worker that gives way writes a checkpoint first, for longer than it takes to call for a node."""
    seconds = 103 + 2 * CALL_SECONDS
    slow = job(max=1, grace_seconds=200.0, checkpoint_every_seconds=900.0, checkpoint_seconds=2 * CALL_SECONDS)
    nominated = play([1], serving(103), jobs=[slow], seconds=seconds)
    assert (nominated.bought, nominated.inference.never, nominated.inference.pods) == (0, 0, 0)
    stuck = play([1], serving(100), serving(103), seconds=seconds)
    assert (stuck.bought > 0, stuck.inference.never) == (True, 1)


@pytest.mark.parametrize("way", [Way.STATIC, Way.STOCK, Way.RESTART, Way.OURS])
def test_training_that_waits_has_nodes_bought_which_are_not_given(way: Way) -> None:
    outcome = play([1], jobs=[job(start=4, max=4)], way=way, group=NodeGroup(gpus=1, most=5))
    assert workers(outcome) == 4
    assert 3 * (3000 - CALL_SECONDS) <= outcome.bought <= 3 * 3000
    assert outcome.given <= 3000
    assert outcome.goodput > 2


def test_a_moment_without_room_buys_nothing() -> None:
    brief = serving(103, YOUNG_SECONDS - SCAN_SECONDS)
    assert play([1], serving(100, YOUNG_SECONDS - SCAN_SECONDS), brief).bought == 0


def test_jobs_that_share_ask_for_no_worker_without_room_but_for_their_min() -> None:
    def most(demands: tuple[JobDemand, ...], _gpus: int) -> Mapping[str, int]:
        return {demand.name: demand.max for demand in demands}

    assert play([1], jobs=[job(max=4)], shared=most).bought == 0
    assert workers(play([1], jobs=[job(min=3, start=3, max=4)], shared=most)) == 4


def test_given_is_what_inference_leaves_of_the_nodes_that_were_bought_for_it() -> None:
    pods = serving(100), serving(103)
    task = job(max=4)
    oracle = play([1], *pods, jobs=[task], way=Way.ORACLE)
    there = 3000 - 103 - YOUNG_SECONDS - GROUP.delay_seconds
    assert 100 + 3 * (there - 2 * SCAN_SECONDS) <= oracle.given <= 100 + 3 * there
    for way in (Way.STOCK, Way.OURS):
        assert play([1], *pods, jobs=[task], way=way).given == pytest.approx(oracle.given)


@pytest.mark.parametrize(("leaves_idle", "nodes"), [(False, GROUP.most), (True, 0)])
def test_training_that_fills_what_a_buffer_keeps_has_nodes_bought_up_to_the_limit(
    leaves_idle: bool, nodes: int
) -> None:
    """Two chunks in a cluster of four GPUs, and one job that could use a hundred."""
    cluster = ClusterDay(day(nodes=[4], seconds=6000.0), STALLS)
    cluster.runs.append(JobRun(0, job(max=100), ElasticWay(), STALLS, cluster))
    cluster.at(0.0, cluster.runs[0].submit)
    cluster.chunks = 2
    buyer = ClusterAutoscaler(cluster, GROUP, shared=True)
    sharing = CapacitySharing(cluster, share, kept=lambda: cluster.chunks if leaves_idle else 0)
    LookSchedule(cluster, [buyer.look, sharing.look]).begin()
    sharing.begin()
    list(cluster.moments(cluster.seconds))
    bought = buyer.bought(cluster.seconds)
    assert len(cluster.table.rooms) == 1 + nodes
    assert (bought > 0) == (nodes > 0)
    assert cluster.runs[0].workers.count(WorkerPhase.MEMBER) == 4 * (1 + nodes) - (2 if leaves_idle else 0)
