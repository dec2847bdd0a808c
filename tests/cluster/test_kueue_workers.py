"""Jobs whose workers are queued in Kueue one by one: quota is taken and given back a worker at a time."""

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest

from hvd_elastic.discovery.ledger.entries import Departure, WorkerLeaving, from_lines
from hvd_elastic.mpijob.contract import LEDGER_KEY, LEDGER_SUFFIX, Role
from testbed.cluster import inference, jobs, queues
from testbed.cluster.inference import Inference
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.cluster.standing import LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_kueue import said

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]
FLOOR: Final = 1
RECLAIMS: Final = 50
QUEUE: Final = {"system": "kueue", "name": queues.TRAINING}


@pytest.fixture(scope="module", autouse=True)
def kueue(cluster: Site) -> Iterator[None]:
    """The queues of the platform kit, in the newest Kueue: one GPU of four is training's own."""
    with queues.kueue_with_queues(cluster, gpus=SIZE, floor=FLOOR):
        yield


@pytest.fixture
def queued(namespace: Kubectl) -> Kubectl:
    """The namespace with a queue for training and one for serving."""
    queues.open_queues(namespace)
    return namespace


def serve(cluster: Site, kubectl: Kubectl) -> Inference:
    return inference.deploy(cluster, kubectl, queue=queues.SERVING, priority_class=queues.SERVING_CLASS)


def departures(job: Job) -> list[WorkerLeaving]:
    """What the ledger tells of workers that left."""
    text = job.kubectl.get("configmap", f"{job.name}{LEDGER_SUFFIX}")["data"][LEDGER_KEY]
    return [entry for entry in from_lines(text.splitlines()) if isinstance(entry, WorkerLeaving)]


@contextlib.contextmanager
def never_above(kubectl: Kubectl, gpus: int) -> Iterator[None]:
    """Look at the quota all the time: no more of it is ever reserved."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            seen.append(queues.reserved_gpus(kubectl))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert max(seen) <= gpus, seen


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_claim_takes_as_many_workers_as_it_asks_for(
    cluster: Site, queued: Kubectl, timeline: Timeline, launcher: str
) -> None:
    with never_above(cluster.kubectl, SIZE):
        job = start(cluster, queued, launcher, queue=QUEUE)
        job.wait_size(SIZE)
        (launched,) = job.pods(Role.LAUNCHER)
        load = serve(cluster, queued)
        timeline.mark("serving asks for two of four GPUs")
        load.scale(2)
        load.wait(2)
        job.wait_size(SIZE - 2)
        job.wait_steps(10)
        told = departures(job)
        assert [entry.why for entry in told] == [Departure.PREEMPTED] * 2
        assert {entry.queue for entry in told} == {queues.SERVING}
        waiting.until(
            "status says that two workers are queued, and for what",
            lambda: (
                len(re.findall(rf"queued since \S+: queue {queues.TRAINING}: ", said(f"status {job.name}", job))) == 2
            ),
            within_seconds=60,
            seen=lambda: said(f"status {job.name}", job),
        )
        assert f"of queue {queues.SERVING}" in said(f"events {job.name}", job)

        back = timeline.mark("serving ends")
        load.scale(0)
        job.wait_size(SIZE, since=back)
    assert [pod["metadata"]["uid"] for pod in job.pods(Role.LAUNCHER)] == [launched["metadata"]["uid"]]
    job.finish()
    nothing_lost(job.account, ended=True)


def test_the_queues_own_quota_stays_when_serving_asks_for_all(cluster: Site, queued: Kubectl) -> None:
    job = start(cluster, queued, "launch", queue=QUEUE)
    load = serve(cluster, queued)
    job.wait_size(SIZE)
    load.scale(SIZE)
    job.wait_size(FLOOR)
    job.wait_steps(20)
    assert sum(pod["status"]["phase"] == "Running" for pod in job.pods(Role.WORKER)) == FLOOR
    load.scale(0)
    job.wait_size(SIZE)
    job.finish()
    nothing_lost(job.account, ended=True)


@pytest.mark.timeout(2400, func_only=True)
def test_no_reclaim_takes_a_second_worker(cluster: Site, queued: Kubectl, timeline: Timeline) -> None:
    """Inference of the class that preempts nobody waits for the worker that Kueue takes; the scheduler takes none."""
    with never_above(cluster.kubectl, SIZE):
        job = start(cluster, queued, "launch", queue=QUEUE)
        load = serve(cluster, queued)
        job.wait_size(SIZE)
        for reclaim in range(1, RECLAIMS + 1):
            timeline.mark(f"reclaim {reclaim}")
            load.scale(1)
            load.wait(1)
            job.wait_size(SIZE - 1)
            back = timeline.mark(f"given back {reclaim}")
            load.scale(0)
            job.wait_size(SIZE, since=back)
            waiting.until(
                f"the ledger has {reclaim} departures",
                lambda wanted=reclaim: len(departures(job)) >= wanted,  # type: ignore[misc]
                within_seconds=30,
            )
            assert len(departures(job)) == reclaim, departures(job)[-3:]
    assert {(entry.why, entry.queue) for entry in departures(job)} == {(Departure.PREEMPTED, queues.SERVING)}
    job.finish()
    nothing_lost(job.account, ended=True)


def test_scaled_in_a_queue_no_worker_restarts(cluster: Site, queued: Kubectl) -> None:
    job = start(cluster, queued, "launch", queue=QUEUE)
    job.wait_size(SIZE)
    for size in (2, SIZE):
        assert "restarts from its checkpoint" not in said(f"scale {job.name} {size} --wait", job)
        job.wait_size(size)
    job.finish()
    nothing_lost(job.account, ended=True)


def test_two_jobs_that_need_two_each_of_three_do_not_both_wait(cluster: Site, queued: Kubectl) -> None:
    """One of them has its two, whichever; when it ends, the other has all that there is."""
    load = serve(cluster, queued)
    load.scale(1)
    load.wait(1)
    beside = f"{queued.namespace}-2"[-60:].lstrip("-")
    other = make_namespace(cluster, beside)
    try:
        queues.open_queues(other)
        wanted: dict[str, Any] = {"workers": jobs.workers((2, 2, SIZE)), "queue": QUEUE}
        both = [start(cluster, kubectl, "launch", **wanted) for kubectl in (queued, other)]
        first = waiting.until(
            "one of them trains",
            lambda: next((job for job in both if job.account.size >= 2), None),
            within_seconds=120,
            seen=lambda: "\n".join(job.describe() for job in both),
        )
        (second,) = (job for job in both if job is not first)
        first.wait_steps(10)
        first.finish()
        second.wait_size(SIZE - 1)
        second.finish()
        nothing_lost(second.account, ended=True)
    finally:
        remove_namespace(cluster, beside)


def test_a_lost_node_leaves_no_quota_behind(cluster: Site, queued: Kubectl, timeline: Timeline) -> None:
    job = start(cluster, queued, "launch", queue=QUEUE, checkpoint={"url": "file:///output/checkpoints", "every": 5})
    job.wait_size(SIZE)
    job.wait_steps(10)
    spot = cluster.local().nodes["spot"]
    timeline.mark("the cable is pulled")
    spot.link.set(up=False)
    try:
        cluster.kubectl("wait", "node/spot", "--for=condition=Ready=Unknown", "--timeout=120s", within_seconds=130)
        gone = {pod["metadata"]["uid"] for pod in job.pods(Role.WORKER)}
        waiting.until(
            "the workers of the lost node are replaced",
            lambda: gone.isdisjoint({pod["metadata"]["uid"] for pod in job.pods(Role.WORKER)}),
            within_seconds=180,
            seen=job.describe,
        )
    finally:
        back = timeline.mark("the cable is plugged in")
        spot.link.set(up=True)
    cluster.kubectl.wait("node", "spot", condition="Ready", within_seconds=60)
    job.wait_size(SIZE, since=back, within_seconds=180)
    assert queues.reserved_gpus(cluster.kubectl) == SIZE
    job.finish()
    assert not job.account.skipped()


def test_a_kueue_that_was_away_leaves_nothing_stuck(cluster: Site, queued: Kubectl, timeline: Timeline) -> None:
    """Its finalizer holds the names of workers that end meanwhile, and its webhook refuses new ones."""
    job = start(cluster, queued, "launch", queue=QUEUE)
    job.wait_size(SIZE)
    manager = cluster.local().daemon("kueue")
    timeline.mark("Kueue ends")
    manager.stop()
    try:
        victim = job.pods(Role.WORKER)[-1]["metadata"]
        queued("delete", "pod", victim["name"], "--wait=false")
        job.wait_size(SIZE - 1)
        waiting.until(
            "status names what holds it",
            lambda: "its pod stays until its finalizers are removed" in said(f"status {job.name}", job),
            within_seconds=90,
            every_seconds=2,
            seen=lambda: said(f"status {job.name}", job),
        )
        job.wait_steps(10)
    finally:
        back = timeline.mark("Kueue is back")
        manager.start()
    job.wait_size(SIZE, since=back, within_seconds=240)
    assert victim["uid"] not in {pod["metadata"]["uid"] for pod in job.pods(Role.WORKER)}
    job.finish()
    nothing_lost(job.account, ended=True)
