"""What the autoscaler does in one turn: the cluster and what is remembered in, new numbers of workers out.

jobs, nodes, pods ──► pools ──► GPUs that training may have ──► victims ──► share ──► what has room ──► decisions
                          └─► inference's demand ──► the reserve ──┘
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.decide.autoscale.forecast.capacity_buffers import BufferedPod
from hvd_elastic.decide.autoscale.node_pool import NodePool, pools_of
from hvd_elastic.decide.autoscale.observed_speeds import ObservedSpeeds
from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, GpuPod
from hvd_elastic.policy.allowed_sizes import largest_size
from hvd_elastic.policy.reserve import DemandHistory, reserve
from hvd_elastic.policy.sharing import most_workers, share
from hvd_elastic.policy.victims import PlacedJob, victims, victims_anywhere
from hvd_elastic.system.plain_words import count_words

QUANTILE: Final = 0.95
"""The share of five-minute windows in which the reserve should be enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCluster:
    """What was read at one time."""

    jobs: tuple[AutoscaledJob, ...]
    nodes: tuple[GpuNode, ...]
    pods: tuple[GpuPod, ...]
    coming: int = 0
    """GPUs of inference pods that are forecast and not there yet."""
    buffered: int = 0
    """GPUs that a cluster autoscaler keeps ready: training leaves them idle."""
    own_buffer: BufferedPod | None = None
    """Of the CapacityBuffer that follows the reserve. None: there is none, or it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMemory:
    """What is remembered of a job."""

    speeds: ObservedSpeeds = field(default_factory=ObservedSpeeds)
    heard: float = 0.0
    """Unix seconds of the last status that was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerMemory:
    """What is remembered from turn to turn."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)
    demand: DemandHistory = field(default_factory=DemandHistory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDecision:
    """One job gets another number of workers."""

    job: AutoscaledJob
    workers: int
    note: ScalingNote

    @property
    def reason(self) -> str:
        """Why, for people."""
        return self.note.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The GPUs of a pool, as far as training may count on them."""

    gpus: int
    """All together."""
    waiting: int
    """Asked for by inference pods that wait, or are forecast."""
    reserve: int
    """Kept idle."""


def decide(
    state: SharedCluster, memory: AutoscalerMemory, now: float, *, quantile: float = QUANTILE
) -> tuple[tuple[ScaleDecision, ...], AutoscalerMemory]:
    """The changes of this turn, and what to remember. `now`: Unix seconds. Equal input, equal output."""
    memory = _with_reports(state, memory, now)
    pools = pools_of(state.jobs, state.nodes, state.pods, now)
    inference = sum(pool.inference_gpus for pool in pools) + state.coming
    waits = any(pool.waiting for pool in pools)
    memory = replace(memory, demand=memory.demand.seen(now, inference, waits=waits, quantile=quantile))
    unclaimed = sum(pool.unclaimed for pool in pools)
    idle = max(0, unclaimed - state.coming)
    kept = max(reserve(memory.demand, now, unclaimed=idle, quantile=quantile), min(state.buffered, idle))
    decisions: list[ScaleDecision] = []
    for pool in pools:
        # A reserve, and pods that are forecast, may need any of the pools: each keeps its part.
        part = pool.unclaimed / unclaimed if unclaimed else 0.0
        coming, left = (ceil(round(gpus * part, 6)) for gpus in (state.coming, kept))
        room = Room(gpus=max(0, pool.unclaimed - coming - left), waiting=pool.waiting_gpus + coming, reserve=left)
        decisions += _in_pool(pool, room, memory, now)
    return tuple(decisions), memory


def _with_reports(state: SharedCluster, memory: AutoscalerMemory, now: float) -> AutoscalerMemory:
    """With what the jobs have said since. A job that is gone is forgotten."""
    jobs = {}
    for job in state.jobs:
        known = memory.jobs.get(job.name) or JobMemory(speeds=ObservedSpeeds.noted(job.note.speeds if job.note else {}))
        report = job.report(now)
        if report and job.live and job.live.unix > known.heard:
            known = JobMemory(speeds=known.speeds.heard(*report), heard=job.live.unix)
        jobs[job.name] = known
    return replace(memory, jobs=jobs)


def _in_pool(pool: NodePool, room: Room, memory: AutoscalerMemory, now: float) -> Iterator[ScaleDecision]:
    is_short = sum(job.asked * job.gpus for job in pool.jobs) > room.gpus
    present = _after_victims(pool, room, memory, now) if is_short else {job.name: job.asked for job in pool.jobs}
    demands = tuple(job.demand(present[job.name], memory.jobs[job.name].speeds, now) for job in pool.jobs)
    shared = share(demands, room.gpus)
    # What has no min yet goes on asking for it: less is no job.
    wanted = {demand.name: shared[demand.name] or demand.min for demand in demands}
    placed = pool.with_room(wanted)
    for job, demand in zip(pool.jobs, demands, strict=True):
        workers = max(job.min, largest_size(job.sizes, placed[job.name]))
        if demand.buy and not room.reserve and not room.waiting:
            workers = max(workers, most_workers(demand))
        if workers == job.asked or (job.is_cooling(now) and not (is_short and workers < job.asked)):
            continue
        reason = _reason(pool, room, job, workers, buys=demand.buy and workers > placed[job.name])
        note = ScalingNote(
            unix=now,
            before=job.asked,
            workers=workers,
            reason=reason,
            ceiling=job.ceiling,
            speeds={str(size): value for size, value in memory.jobs[job.name].speeds.means.items()},
        )
        yield ScaleDecision(job=job, workers=workers, note=note)


def _after_victims(pool: NodePool, room: Room, memory: AutoscalerMemory, now: float) -> dict[str, int]:
    """The workers that are left once those without a node are no longer asked for, and victims have gone."""
    there = {job.name: pool.bound(job) for job in pool.jobs}
    jobs = [
        PlacedJob(demand=job.demand(len(nodes), memory.jobs[job.name].speeds, now), nodes=nodes)
        for job in pool.jobs
        if (nodes := there[job.name])
    ]
    taken: Counter[str] = Counter()
    # Where the scheduler has chosen victims, nobody else need go.
    if unserved := [pod for pod in pool.waiting if not pod.nominated]:
        largest = max(unserved, key=lambda pod: (pod.gpus, pod.uid))
        taken.update(victims(jobs, largest.gpus, pool.free_for(largest)) or {})
    left = [replace(job, nodes=job.nodes[: len(job.nodes) - taken[job.demand.name]]) for job in jobs]
    missing = sum(len(job.nodes) * job.demand.gpus for job in left) - room.gpus
    taken.update(victims_anywhere([job for job in left if job.nodes], missing) if missing > 0 else {})
    return {job.name: len(there[job.name]) - taken[job.name] for job in pool.jobs}


def _reason(pool: NodePool, room: Room, job: AutoscaledJob, workers: int, *, buys: bool) -> str:
    """One clause for people."""
    if buys:
        return "it may buy: the cluster autoscaler adds nodes for the workers that have no room"
    if workers > job.asked:
        return f"{count_words(sum(pool.free.values()), 'GPU')} of {count_words(len(pool.nodes), 'node')} are idle"
    there = len(pool.bound(job))
    if workers >= largest_size(job.sizes, there):
        surplus = f"it does not train with {count_words(there, 'worker')}, and its next size has no room"
        return surplus if workers < there else f"{count_words(job.asked - workers, 'worker')} had no room on any node"
    if room.waiting:
        return f"inference waits for {count_words(room.waiting, 'GPU')}"
    if pool.held <= room.gpus:
        return "other jobs gain more from these GPUs"
    return f"a reserve of {count_words(room.reserve, 'GPU')} for inference" if room.reserve else "GPUs have gone"
