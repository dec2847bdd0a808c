"""Nodes that some jobs share, and who holds which of their GPUs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, GpuPod

WAITING_SECONDS: Final = 120.0
"""A pod that waits for longer waits for something that training cannot give it: a CPU, a volume, a zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Jobs whose workers may run on the same nodes, with GPUs of the same resource. No job is in two pools."""

    jobs: tuple[AutoscaledJob, ...]
    """By name."""
    nodes: tuple[GpuNode, ...]
    pods: tuple[GpuPod, ...]
    """That are on these nodes."""
    waiting: tuple[GpuPod, ...]
    """Inference pods without a node, for which training could make room."""
    free: Mapping[str, int]
    """GPUs that no pod holds, by node."""

    @property
    def held(self) -> int:
        """GPUs of the jobs' workers."""
        ours = {job.name for job in self.jobs}
        return sum(pod.gpus for pod in self.pods if pod.job in ours)

    @property
    def waiting_gpus(self) -> int:
        """GPUs that inference pods wait for."""
        return sum(pod.gpus for pod in self.waiting)

    @property
    def inference_gpus(self) -> int:
        """GPUs that inference holds or waits for."""
        return self.waiting_gpus + self._held_by(pod for pod in self.pods if not pod.job)

    @property
    def unclaimed(self) -> int:
        """GPUs that nobody but the jobs holds or waits for."""
        ours = {job.name for job in self.jobs}
        others = self._held_by(pod for pod in self.pods if pod.job not in ours)
        return max(0, sum(node.gpus for node in self.nodes) - others - self.waiting_gpus)

    def _held_by(self, pods: Iterable[GpuPod]) -> int:
        """GPUs, on no node more than it has: anyone may write a node into a pod, which its kubelet refuses later."""
        held = Counter[str]()
        for pod in pods:
            held[pod.node] += pod.gpus
        return sum(min(node.gpus, held[node.name]) for node in self.nodes)

    def bound(self, job: AutoscaledJob) -> tuple[str, ...]:
        """The nodes of a job's workers that are asked for and stay, by index."""
        mine = sorted((pod for pod in self.pods if pod.job == job.name), key=lambda pod: pod.index)
        return tuple(pod.node for pod in mine if 0 <= pod.index < job.asked and not pod.leaving)

    def free_for(self, pod: GpuPod) -> Mapping[str, int]:
        """Free GPUs of the nodes that a pod may run on."""
        return {node.name: self.free[node.name] for node in self.nodes if pod.placement.fits(node)}

    def with_room(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """As many of the wanted workers as have a node, or would find one now. Large workers choose first."""
        free, placed = dict(self.free), dict[str, int]()
        for pod in sorted(self.waiting, key=lambda pod: (-pod.gpus, pod.uid)):
            _first_fit(free, pod.gpus, 1, self.free_for(pod))
        for job in sorted(self.jobs, key=lambda job: (-job.gpus, job.name)):
            there = len(self.bound(job))
            fitting = [node.name for node in self.nodes if job.placement.fits(node)]
            more = _first_fit(free, job.gpus, wanted[job.name] - there, fitting)
            placed[job.name] = min(wanted[job.name], there + more)
        return placed


def pools_of(
    jobs: Sequence[AutoscaledJob], nodes: Sequence[GpuNode], pods: Sequence[GpuPod], now: float
) -> list[NodePool]:
    """The pools, by the names of their jobs. Jobs that no node fits share a pool without nodes."""
    resources = sorted({job.resource for job in jobs})
    return [pool for resource in resources for pool in _pools_of(resource, jobs, nodes, pods, now)]


def _pools_of(
    resource: str, jobs: Sequence[AutoscaledJob], nodes: Sequence[GpuNode], pods: Sequence[GpuPod], now: float
) -> list[NodePool]:
    nodes = [node for node in nodes if node.resource == resource]
    pods = [pod for pod in pods if pod.resource == resource]
    groups: list[tuple[list[AutoscaledJob], set[str]]] = []
    for job in sorted((job for job in jobs if job.resource == resource), key=lambda job: job.name):
        names = {node.name for node in nodes if job.placement.fits(node)}
        touching = [group for group in groups if group[1] & names or not (group[1] or names)]
        merged = (
            [one for group in touching for one in group[0]] + [job],
            names.union(*(group[1] for group in touching)),
        )
        groups = [group for group in groups if group not in touching] + [merged]
    return [_pool(sorted(group, key=lambda job: job.name), names, nodes, pods, now) for group, names in groups]


def _pool(
    jobs: Iterable[AutoscaledJob], names: set[str], nodes: Sequence[GpuNode], pods: Sequence[GpuPod], now: float
) -> NodePool:
    jobs = tuple(jobs)
    here = tuple(node for node in nodes if node.name in names)
    there = tuple(pod for pod in pods if pod.node in names)
    ours = {job.name for job in jobs}
    lowest = min((pod.priority for pod in pods if pod.job in ours), default=None)
    free = Counter({node.name: node.gpus for node in here})
    lent = Counter(free)
    for pod in there:
        free[pod.node] -= pod.gpus
        lent[pod.node] -= 0 if pod.job in ours else pod.gpus

    def could_run(pod: GpuPod) -> bool:
        """Whether a pod waits that comes before the jobs, and would have room if they gave all."""
        is_first = not pod.node and not pod.job and (lowest is None or pod.priority > lowest)
        is_fresh = pod.nominated or now - pod.asked < WAITING_SECONDS
        return is_first and is_fresh and any(lent[node.name] >= pod.gpus and pod.placement.fits(node) for node in here)

    return NodePool(
        jobs=jobs,
        nodes=here,
        pods=there,
        waiting=tuple(filter(could_run, pods)),
        free={name: max(0, gpus) for name, gpus in free.items()},
    )


def _first_fit(free: dict[str, int], gpus: int, count: int, nodes: Iterable[str]) -> int:
    """Put pods of one size on these nodes, and return how many found room. `free` loses what they take."""
    found = 0
    for name in nodes:
        fitting = max(0, min(count - found, free[name] // gpus))
        free[name] -= fitting * gpus
        found += fitting
    return found
