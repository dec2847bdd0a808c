"""Bursts at size: nodes, workers and inference of kwok, and between them the real scheduler, API server and operator.

What ends a pod on a real node is not there: a pod of kwok is gone so long after it was told to end as real ones were.
The job is as the product generates it. Its launcher's pod is real, with its sidecar: no worker answers it, so it trains
nothing.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from benchmarks.burst.burst_load import BurstLoad
from benchmarks.burst.measured_burst import AT_ONCE, IDLE, Leaving, Measured, training_kind
from benchmarks.systems.product import LAUNCH
from benchmarks.systems.system import WantedJob
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference
from testbed.cluster.pod_watch import PodWatch
from testbed.cluster.pods import pod
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube import kwok
from testbed.kube.kubectl import Kubectl

_AT_ONCE: Final = "at-once"
_PATIENCE_SECONDS: Final = 120.0
"""The news of 79 lost workers and of the new ones pass the operator's queue, ten a second, in less."""


def measure(site: Site, workers: int, gpus: int, rounds: int, *, leaving: Leaving) -> list[Measured]:
    """Bursts for so many GPUs on nodes of `workers` GPUs, `rounds` of each kind, one kind after the other.

    Args:
        site: the test cluster.
        workers: of the job, and GPUs of all nodes together.
        gpus: that each burst asks for.
        rounds: bursts of each kind.
        leaving: how long pods take to end.

    """
    name = f"bench-bursts-{workers}"
    with ExitStack() as stack:
        stack.enter_context(fake_nodes(site, workers // kwok.GPUS, leaving))
        kubectl = make_namespace(site, name)
        stack.callback(remove_namespace, site, name)
        load = BurstLoad(
            place=f"kwok, {workers} workers",
            load=inference.deploy(site, kubectl, nodes=kwok.LABELS),
            watch=stack.enter_context(PodWatch(kubectl)),
        )
        for _ in range(rounds):
            load.burst(IDLE, gpus)
            load.give_back()
        _from_pods(kubectl, load, workers, gpus, rounds)
        wanted = WantedJob(node_labels=kwok.LABELS, start=workers, size=workers, keys={"tolerations": [kwok.TAINT]})
        job = LAUNCH.submit(site, kubectl, wanted)
        load.until_running(f"{job.name}-launcher", 1)
        for _ in range(rounds):
            _back_to_size(site, load, f"{job.name}-{Role.WORKER}", workers)
            load.burst(training_kind(LAUNCH.name), gpus)
            load.give_back()
        return load.measured()


def _back_to_size(site: Site, load: BurstLoad, prefix: str, workers: int) -> None:
    """Wait until all workers run. After a burst the operator may look away for minutes (docs/requirements.md)."""
    if not load.come_to_run(prefix, workers, within_seconds=_PATIENCE_SECONDS):
        print(f"  {load.place}: not back to size after {_PATIENCE_SECONDS:g} s, the operator is restarted", flush=True)
        site.local().restart_mpi_operator()
        load.until_running(prefix, workers)


@contextmanager
def fake_nodes(site: Site, count: int, leaving: Leaving) -> Iterator[None]:
    """So many nodes of kwok."""
    machine = site.local()
    kwok.start(
        machine.plane,
        site.kubectl,
        nodes=count,
        worker_leaves=leaving.training,
        other_leaves=leaving.at_once,
    )
    try:
        yield
    finally:
        kwok.stop(machine.plane, site.kubectl)


def _from_pods(kubectl: Kubectl, load: BurstLoad, workers: int, gpus: int, rounds: int) -> None:
    kubectl.apply([_victims(workers)])
    for _ in range(rounds):
        load.until_running(_AT_ONCE, workers)
        load.burst(AT_ONCE, gpus)
        load.give_back()
    kubectl("delete", "deployment", _AT_ONCE)


def _victims(count: int) -> dict[str, Any]:
    """As many pods as the job has workers, which come back as its workers do."""
    described = pod(
        _AT_ONCE,
        image="registry.invalid/none:1",
        selector=kwok.LABELS,
        gpus=1,
        priority="preemptible-pc",
        grace_seconds=30,
    )
    labels = described["metadata"]["labels"]
    template = {"metadata": {"labels": labels}, "spec": {**described["spec"], "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _AT_ONCE},
        "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template},
    }
