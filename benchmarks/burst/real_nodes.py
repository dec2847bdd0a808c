"""Bursts on a real node: a real job gives GPUs, beside idle ones and beside pods that end at once, in turns."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.burst.burst_load import BurstLoad
from benchmarks.burst.measured_burst import AT_ONCE, IDLE, Measured, training_kind
from benchmarks.systems.system import SPOT, System, WantedJob
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference
from testbed.cluster.jobs import Job
from testbed.cluster.pod_watch import PodWatch
from testbed.cluster.pods import OLD_SECONDS, pod
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube import store
from testbed.kube.kubectl import Kubectl

SIZE: Final = 4
"""Workers of the job: the GPUs of the node. It may give all of them but one."""


def place(system: System) -> str:
    """The node with a job, beside which all kinds of bursts ask."""
    return f"a node, {SIZE} workers of {system.name}"


def measure(site: Site, system: System, gpus: int, rounds: int) -> list[Measured]:
    """Bursts for so many GPUs, of each kind in each round. The training runs beside all of them."""
    spot = site.local().nodes["spot"]
    offer = partial(spot.set_gpus, site.kubectl)
    name = f"bench-bursts-{system.name}"
    kubectl = make_namespace(site, name)
    offer(SIZE)
    try:
        job = system.submit(site, kubectl, WantedJob(node_labels=SPOT, start=SIZE, size=SIZE))
        with PodWatch(kubectl) as watch:
            load = BurstLoad(place=place(system), load=inference.deploy(site, kubectl), watch=watch)
            job.wait_size(SIZE, within_seconds=240)
            for number in range(rounds + 1):
                offer(SIZE + gpus)
                load.burst(IDLE, gpus)
                load.give_back()
                if number == 0:  # it has brought the image into the page cache
                    load.found.clear()
                    continue
                _from_pods(kubectl, load, gpus)
                offer(SIZE)
                _from_training(job, load, system, gpus)
            return load.measured()
    finally:
        remove_namespace(site, name)
        offer(spot.node.gpus)


def _from_pods(kubectl: Kubectl, load: BurstLoad, gpus: int) -> None:
    """Pods that end as soon as they are told have the other GPUs: of equals the scheduler preempts the youngest."""
    kubectl.apply(_victims(gpus))
    load.until_running("at-once", gpus)
    time.sleep(OLD_SECONDS)
    load.burst(AT_ONCE, gpus)
    load.give_back()


def _victims(count: int) -> Sequence[dict[str, object]]:
    return [
        pod(
            f"at-once-{number}",
            image=store.PAUSE_IMAGE,
            selector=SPOT,
            gpus=1,
            priority="preemptible-pc",
            grace_seconds=30,
        )
        for number in range(count)
    ]


def _from_training(job: Job, load: BurstLoad, system: System, gpus: int) -> None:
    """Training gives its GPUs, and takes them back before the next round."""
    load.burst(training_kind(system.name), gpus)
    job.wait_size(SIZE - gpus)
    back = time.time()
    load.give_back()
    load.until_running(f"{job.name}-{Role.WORKER}", SIZE)
    job.wait_size(SIZE, since=back)
    time.sleep(OLD_SECONDS)
