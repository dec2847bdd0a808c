"""Sixty-four processes in sixteen pods of four: they start, lose a pod to inference, get it back, and lose a rank."""

import json
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs
from testbed.cluster.faults import signal_processes
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import LAUNCHERS, start
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500, func_only=True)]

PODS, SLOTS = 16, 4
SIZE: Final = PODS * SLOTS
LATE: Final = 600
"""Seconds, a deadline: two cores start 64 processes that import torch."""

FORKED: Final = "forked.py"
TRAINING: Final = (
    f"exec python -S /output/scripts/{FORKED} /output/scripts/paced.py --pace=0.5 --global-batch={2 * SIZE}"
)
"""All of them have the same two cores, so a step takes most of a second however little it computes."""


@pytest.fixture
def room(cluster: Site) -> Iterator[None]:
    """The node has a GPU for each process."""
    node = cluster.local().nodes["spot"]
    node.set_gpus(cluster.kubectl, SIZE)
    yield
    node.set_gpus(cluster.kubectl, node.node.gpus)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.usefixtures("room")
def test_sixty_four_processes(cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str) -> None:
    workers = jobs.workers((1, PODS, PODS), gpus=SLOTS, cpu="50m", memory="1200Mi")
    job = start(cluster, namespace, launcher, command=["sh", "-c", TRAINING], workers=workers)
    job.wait_size(SIZE, within_seconds=LATE)
    job.wait_steps(5, within_seconds=LATE)

    timeline.mark("four GPUs for inference")
    load = inference.deploy(cluster, namespace, gpus=SLOTS)
    load.scale(1)
    job.wait_size(SIZE - SLOTS, within_seconds=LATE)
    load.wait(1)
    job.wait_steps(5, within_seconds=LATE)

    back = timeline.mark("given back")
    load.scale(0)
    job.wait_size(SIZE, since=back, within_seconds=LATE)
    job.wait_steps(5, within_seconds=LATE)
    told = job.account
    assert (told.skipped(), told.repeated()) == ([], [])

    _lose_rank(job, timeline)
    _tell_costs(job, timeline)


def _lose_rank(job: Job, timeline: Timeline) -> None:
    killed = timeline.mark("kill -9 of a rank")
    assert signal_processes(job, job.pods(Role.WORKER)[PODS // 2]["metadata"]["name"], FORKED, signal.SIGKILL, most=1)
    job.wait_smaller(SIZE, since=killed, within_seconds=LATE)
    job.wait_size(SIZE, since=killed, within_seconds=LATE)
    job.wait_steps(5, within_seconds=LATE)
    told = job.account.since(killed)
    assert told.skipped() == []
    assert len(told.repeated()) <= 1, "more was lost than the step that was under way"


def _tell_costs(job: Job, timeline: Timeline) -> None:
    """For how long training stood still, a step at the new size included."""
    stalls = {
        "a pod goes to inference, or a rank dies": job.account.stall(SIZE, SIZE - SLOTS),
        "it comes back": job.account.stall(SIZE - SLOTS, SIZE),
    }
    (timeline.folder / "stalls.json").write_text(json.dumps(stalls, indent=2))
    print(stalls)
