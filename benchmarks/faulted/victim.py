"""A job to which faults are done: at full size, with all that a fault may be about."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.systems.system import SIZE, SPOT, System, WantedJob
from benchmarks.systems.torchelastic import TORCHELASTIC
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import jobs, object_store
from testbed.cluster.faults import STANDBY
from testbed.cluster.jobs import Job
from testbed.cluster.object_store import ObjectStore
from testbed.cluster.site import Site, make_namespace, remove_namespace, told
from testbed.cluster.small_disk import SmallDisk, small_disk
from testbed.cluster.standing import DURABLE
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl

START_SECONDS: Final = 300.0
"""Stock's list of hosts may take minutes to name all workers, twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A job at full size, and what is needed to do it harm."""

    site: Site
    system: System
    job: Job
    number: int
    """Of the round: another worker is struck each time."""
    timeline: Timeline
    disk: SmallDisk
    """On which its checkpoints are."""
    store: ObjectStore | None
    """In which its checkpoints are instead, if they are in any."""

    @property
    def worker(self) -> str:
        """The pod of the worker that is struck."""
        pods = self.job.pods(Role.WORKER)
        return str(pods[self.number % len(pods)]["metadata"]["name"])

    @property
    def launcher(self) -> str:
        """The pod without which the others cannot meet: of TorchElastic that of rank 0, which holds the rendezvous."""
        found = self.job.pods(Role.WORKER if self.system is TORCHELASTIC else Role.LAUNCHER)
        return str(next(one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running"))


@contextlib.contextmanager
def standing(site: Site, system: System, folder: Path, *, apart: bool, in_store: bool) -> Iterator[Victim]:
    """A job at full size, in a namespace of its own.

    Args:
        site: the cluster.
        system: what runs it.
        folder: of what happens meanwhile.
        apart: whether one worker stands on the spot node by itself, and rank 0 on the other.
        in_store: whether its checkpoints go to an object store.
    """
    name = f"fault-{system.name}"
    kubectl = make_namespace(site, name)
    timeline = Timeline(kubectl, folder)
    timeline.start()
    try:
        shared = jobs.share_results(site, kubectl)
        with (
            small_disk(shared / "checkpoints") as disk,
            object_store.serving_checkpoints(site, kubectl) if in_store else contextlib.nullcontext() as store,
        ):
            wanted = WantedJob(
                node_labels=SPOT,
                shared=shared,
                options=options(system),
                keys=described(store) if system.program == STANDBY else {},
            )
            with placed(site, apart=apart):
                begin = start_apart if apart else start_together
                job = begin(site, kubectl, system, wanted)
                job.wait_size(SIZE, within_seconds=START_SECONDS)
                yield Victim(site=site, system=system, job=job, number=0, timeline=timeline, disk=disk, store=store)
    finally:
        timeline.stop(told(kubectl))
        remove_namespace(site, name)


def options(system: System) -> list[str]:
    """Of the script."""
    return ["--checkpoint", "/output/checkpoints/checkpoint.pt"] if system is TORCHELASTIC else []


def described(store: ObjectStore | None) -> dict[str, Any]:
    """Where the product stores its checkpoints."""
    return {"checkpoint": DURABLE} if store is None else object_store.checkpoints_in(store)


@contextlib.contextmanager
def placed(site: Site, *, apart: bool) -> Iterator[None]:
    """GPUs for SIZE workers on the spot node, or for one there and the others on the other node."""
    nodes = site.local().nodes
    here, there = nodes["on-demand"], nodes["spot"]
    here.set_gpus(site.kubectl, SIZE - 1)
    there.set_gpus(site.kubectl, 0 if apart else SIZE)
    try:
        yield
    finally:
        for node in (here, there):
            node.set_gpus(site.kubectl, node.node.gpus)


def start_together(site: Site, kubectl: Kubectl, system: System, wanted: WantedJob) -> Job:
    """All workers on the spot node."""
    return system.submit(site, kubectl, wanted)


def start_apart(site: Site, kubectl: Kubectl, system: System, wanted: WantedJob) -> Job:
    """All but one worker on the other node, rank 0 among them, and then one more on the spot node."""
    job = system.submit(site, kubectl, replace(wanted, node_labels={}, start=SIZE - 1))
    job.wait_size(SIZE - 1, within_seconds=START_SECONDS)
    site.local().nodes["spot"].set_gpus(site.kubectl, 1)
    return job
