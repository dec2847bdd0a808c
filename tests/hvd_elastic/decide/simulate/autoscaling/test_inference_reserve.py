"""What jobs leave idle for inference on a simulated day, and what is bought so that it is there."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hvd_elastic.decide.autoscale.decision import AutoscalerMemory, SharedCluster, decide
from hvd_elastic.decide.autoscale.forecast.capacity_buffers import BufferedPod, CapacityBuffer
from hvd_elastic.decide.autoscale.reserve_buffer import buffer_decision
from hvd_elastic.decide.simulate.autoscaling.inference_reserve import InferenceReserve, ReserveRule
from hvd_elastic.decide.simulate.autoscaling.look_schedule import LookSchedule
from hvd_elastic.decide.simulate.day import InferencePod, NodeGroup
from hvd_elastic.decide.simulate.engine.capacity_sharing import CapacitySharing
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPod
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.ways.elastic_way import ElasticWay
from hvd_elastic.decide.simulate.workload import SimulatedJob, Way
from hvd_elastic.policy.reserve import WINDOW_SECONDS
from hvd_elastic.policy.sharing import share
from tests.hvd_elastic.decide.autoscale.model_cluster import job as controlled_job
from tests.hvd_elastic.decide.autoscale.model_cluster import node, pod
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job, serving

RULE = ReserveRule(quantile=0.95)
BUFFER = replace(RULE, buffer=True)
OWN = BufferedPod(
    buffer=CapacityBuffer(name="serving/spare", chunks=0, asked=0, template="one-gpu"), pods=(pod("chunk"),)
)
HOUR = 3600.0


def pulses(size: int, until: float, *, seconds: float = 100.0) -> tuple[InferencePod, ...]:
    """In each window some pods come in its middle and end before the next."""
    moments = [window + WINDOW_SECONDS / 2 for window in range(0, int(until), int(WINDOW_SECONDS))]
    return tuple(serving(moment + place / 10, seconds) for moment in moments for place in range(size))


def play(
    nodes: Sequence[int],
    pods: Sequence[InferencePod],
    task: SimulatedJob,
    rule: ReserveRule | None,
    *,
    most: int = 0,
    hours: float = 2.0,
) -> DayOutcome:
    group = NodeGroup(gpus=4, most=most) if most else None
    known = replace(day(nodes=nodes, pods=tuple(pods), seconds=hours * HOUR), node_group=group)
    return simulate(known, (task,), Way.OURS, STALLS, share=share, reserve=rule)


def sizes(outcome: DayOutcome, since: float) -> set[int]:
    """Of the job from then on, but for moments in which it stands still."""
    return {change.workers for change in outcome.jobs[0].sizes.changes() if change.second > since} - {0}


def test_the_buffer_is_the_one_that_the_controller_decides_on() -> None:
    """At each look, from the same cluster as the API server would show it."""
    staying = [serving(700.0 * place) for place in range(1, 8)]
    burst = [serving(2999.5, 60)] * 8  # of which some wait for victims as it looks
    pods = tuple(sorted((*pulses(2, 2 * HOUR), *staying, *burst), key=lambda one: one.created))
    cluster = ClusterDay(day(nodes=[8, 4, 4], pods=pods, seconds=2 * HOUR), STALLS)
    cluster.runs.append(JobRun(0, job(min=2, max=12), ElasticWay(), STALLS, cluster))
    cluster.at(0.0, cluster.runs[0].submit)
    reserve = InferenceReserve(cluster, BUFFER, node=8)
    sharing = CapacitySharing(cluster, share, kept=reserve.kept)
    sharing.begin()
    memory, decided = AutoscalerMemory(), set[bool]()

    def compare(now: float) -> float:
        nonlocal memory
        state = as_read(cluster, now)
        _, memory = decide(state, memory, now, quantile=BUFFER.quantile)
        assert memory.demand == reserve.history
        assert cluster.chunks == buffer_decision(state, OWN, memory.demand, now, quantile=BUFFER.quantile).chunks
        decided.add(cluster.chunks > 0)
        return float("inf")

    LookSchedule(cluster, [reserve.look, compare, sharing.look]).begin()
    list(cluster.moments(cluster.seconds))
    assert decided == {True, False}
    assert any(window.waited for window in memory.demand.windows)


def as_read(cluster: ClusterDay, now: float) -> SharedCluster:
    nodes = tuple(node(str(number), room.gpus) for number, room in cluster.table.rooms.items())
    bound = [(one, str(number)) for number, room in cluster.table.rooms.items() for one in room.pods]
    waiting = [(one, "") for room in cluster.table.rooms.values() for one in room.nominees]
    pods = tuple(
        pod(str(place), job="team/a", node=where, priority=0)
        if isinstance(one, WorkerPod)
        else pod(str(place), node=where, nominated=not where, asked=now)
        for place, (one, where) in enumerate([*bound, *waiting])
    )
    return SharedCluster(jobs=(controlled_job("team/a", min=2, max=12),), nodes=nodes, pods=pods)


def test_jobs_leave_it_idle_and_inference_need_not_wait_for_them() -> None:
    pods = pulses(2, 2 * HOUR)
    shared, kept = (play([8], pods, job(max=8, start=8), rule) for rule in (None, RULE))
    assert sizes(shared, HOUR) == {6, 8}
    assert max(sizes(kept, HOUR)) <= 6
    assert shared.inference.p50 > kept.inference.p50 == STALLS.bind


def test_a_job_keeps_its_min_though_the_reserve_is_larger() -> None:
    outcome = play([8], pulses(4, 2 * HOUR), job(min=5, start=5, max=8), RULE)
    assert min(sizes(outcome, 2 * WINDOW_SECONDS)) >= 4, "inference alone takes from its min"
    assert max(sizes(outcome, 2 * WINDOW_SECONDS)) == 5
    changes = [change.second for change in outcome.jobs[0].sizes.changes() if change.workers]
    assert max(after - before for before, after in pairwise(changes)) < 2 * WINDOW_SECONDS, "it never left"


def test_a_buffer_has_a_node_there_before_inference_needs_it() -> None:
    """Demand grows faster than a node comes. Without a buffer the first one is called as no GPU is left."""
    pods = [serving(100.0 * number) for number in range(1, 18)]
    waits, ready = (play([8], pods, job(max=2), rule, most=3) for rule in (RULE, BUFFER))
    assert waits.inference.max > 100
    assert ready.inference.max < STALLS.bind + 2
    assert ready.inference.pods == waits.inference.pods == len(pods)
    assert ready.bought > waits.bought > 0


def test_what_jobs_can_give_back_is_not_bought() -> None:
    """Each burst takes what idles, and the cluster autoscaler looks before jobs have restored it."""
    outcome = play([8, 8], pulses(3, 4 * HOUR), job(max=40), BUFFER, most=5, hours=4)
    assert outcome.bought == 0
    assert max(sizes(outcome, HOUR)) < 16, "there is a reserve"
