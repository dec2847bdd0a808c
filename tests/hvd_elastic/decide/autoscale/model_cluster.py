"""A small cluster as values: nodes, inference that comes and goes, and jobs that do what the autoscaler says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.decide.autoscale.decision import AutoscalerMemory, ScaleDecision, SharedCluster, decide
from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, GpuPod, Placement
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.policy.allowed_sizes import largest_size

ANYWHERE = Placement(selector={}, terms=(), tolerations=())
START = 1_000_000.0
"""Unix seconds."""


def job(name: str = "team/a", **changes: Any) -> AutoscaledJob:
    given: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "resource_version": "1",
        "min": 1,
        "max": 8,
        "sizes": (),
        "gpus": 1,
        "resource": GPU_RESOURCE,
        "asked": 8,
        "ceiling": None,
        "weight": 1.0,
        "quota": None,
        "cooldown_seconds": 30.0,
        "buy": False,
        "budget_gpu_seconds": None,
        "per_worker_batch": False,
        "note": None,
        "live": None,
        "placement": ANYWHERE,
        **changes,
    }
    return AutoscaledJob(**given)


def node(name: str, gpus: int = 8, *, resource: str = GPU_RESOURCE, **labels: str) -> GpuNode:
    return GpuNode(name=name, resource=resource, gpus=gpus, labels=labels, taints=())


def pod(uid: str, **changes: Any) -> GpuPod:
    given: dict[str, Any] = {
        "uid": uid,
        "job": "",
        "workload": "",
        "index": -1,
        "node": "",
        "resource": GPU_RESOURCE,
        "gpus": 1,
        "priority": 1000,
        "asked": START,
        "nominated": False,
        "placement": ANYWHERE,
        **changes,
    }
    return GpuPod(**given)


@dataclass
class ModelCluster:
    """Takes a turn of the autoscaler, and lets the scheduler, the sidecars and the jobs do theirs."""

    jobs: list[AutoscaledJob]
    nodes: list[GpuNode]
    speed: Callable[[str, int], float] = lambda _name, workers: 10.0 * workers / (1 + 0.02 * workers)
    now: float = START
    memory: AutoscalerMemory = field(default_factory=AutoscalerMemory)
    inference: list[GpuPod] = field(default_factory=list)
    workers: list[GpuPod] = field(default_factory=list)
    changes: list[ScaleDecision] = field(default_factory=list)
    evictions: int = 0
    waited: int = 0
    """Inference pods for which a worker had to be evicted by the scheduler."""

    def turn(self, seconds: float = 10.0) -> Sequence[ScaleDecision]:
        self.schedule()
        self.train(seconds)
        decided, self.memory = decide(self.state(), self.memory, self.now)
        for decision in decided:
            place = next(n for n, one in enumerate(self.jobs) if one.name == decision.job.name)
            self.jobs[place] = replace(self.jobs[place], asked=decision.workers, note=decision.note)
        self.changes += decided
        self.now += seconds
        return decided

    def state(self) -> SharedCluster:
        return SharedCluster(jobs=tuple(self.jobs), nodes=tuple(self.nodes), pods=(*self.inference, *self.workers))

    def sizes(self) -> dict[str, int]:
        return {one.name: sum(bool(w.node) for w in self.workers if w.job == one.name) for one in self.jobs}

    def set_inference(self, gpus: int) -> None:
        """So many pods of one GPU: the latest go first, new ones wait."""
        self.inference = self.inference[:gpus]
        self.inference += [pod(f"inference-{n}", asked=self.now) for n in range(len(self.inference), gpus)]

    def schedule(self) -> None:
        """Pods as the operator makes them, bound where there is room; inference evicts the newest worker it meets."""
        self.workers = [one for one in self.workers if one.index < self._asked(one.job)]
        known = {(one.job, one.index) for one in self.workers}
        self.workers += [
            pod(f"{one.name}-{index}", job=one.name, index=index, gpus=one.gpus, priority=0, asked=self.now)
            for one in self.jobs
            for index in range(one.asked)
            if (one.name, index) not in known
        ]
        self.inference = [self._bound(one) if not one.node else one for one in self.inference]
        for place, one in enumerate(self.inference):
            if not one.node and (victim := next((w for w in reversed(self.workers) if w.node), None)):
                self.workers[self.workers.index(victim)] = replace(victim, node="", asked=self.now)
                self.inference[place] = self._bound(one)
                self.evictions += 1
        for place, one in enumerate(self.workers):
            self.workers[place] = one if one.node else self._bound(one)

    def train(self, seconds: float) -> None:
        """Each job says how it is, as its sidecar would."""
        for place, one in enumerate(self.jobs):
            size, before = largest_size(one.sizes, self.sizes()[one.name]), one.live
            kept = before is not None and before.workers == size
            self.jobs[place] = replace(
                one,
                live=LiveStatus(
                    unix=self.now,
                    activity=Activity.TRAINING if size >= one.min else Activity.WAITING,
                    since=before.since if before and kept else self.now,
                    workers=size,
                    steps_per_second=self.speed(one.name, size) if size else None,
                    resizes=(before.resizes if before else 0) + (0 if kept or not before else 1),
                    training_seconds=(before.training_seconds if before else 0.0) + seconds,
                ),
            )

    def _asked(self, name: str) -> int:
        return next((one.asked for one in self.jobs if one.name == name), 0)

    def _bound(self, one: GpuPod) -> GpuPod:
        held = {each.name: each.gpus for each in self.nodes}
        for other in (*self.inference, *self.workers):
            if other.node in held:
                held[other.node] -= other.gpus
        room = (each for each in self.nodes if held[each.name] >= one.gpus and one.placement.fits(each))
        found = next(room, None)
        return replace(one, node=found.name) if found else one
