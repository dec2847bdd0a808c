"""Many faults in one job, at moments that a seed decides and in any overlap: what must hold at the end.

FAULT_SEEDS=10 FAULT_FIRST_SEED=100 pytest tests/cluster/test_random_faults.py      (or `make soak SEEDS=10`)
"""

import contextlib
import os
import random
import signal
import time
from itertools import pairwise
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Engine, Role
from testbed.cluster import inference, pods
from testbed.cluster.faults import SSHD, STANDBY, end_sidecar, signal_processes
from testbed.cluster.inference import Inference
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, SAMPLES, SIZE, start
from testbed.cluster.timeline import Timeline
from testbed.cluster.training import Account
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from tests.cluster.random_faults import ACTIONS, Fault, schedule

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

SEEDS: Final = int(os.environ.get("FAULT_SEEDS", "1"))
FIRST_SEED: Final = int(os.environ.get("FAULT_FIRST_SEED", "0"))
MOST_LOST_SECONDS: Final = 2 * float(str(DURABLE["every"]))
"""Of training. A world that is lost whole goes back to the last durable checkpoint, and the next may be under way."""


class Chaos:
    """A job, a load, and what is done to both."""

    def __init__(self, site: Site, job: Job, load: Inference, timeline: Timeline) -> None:
        self._site, self._job, self._load, self._timeline = site, job, load, timeline
        self._asked = 0

    def strike(self, fault: Fault, chance: random.Random) -> None:
        """Do it, wherever the job stands. That there is nothing left to strike is no error: it is struck already."""
        with contextlib.suppress(ClusterError, IndexError):
            match fault:
                case Fault.LOAD:
                    self._asked = chance.choice([count for count in range(SIZE + 1) if count != self._asked])
                    self._load.scale(self._asked)
                    self._timeline.mark(f"inference asks for {self._asked}")
                    return
                case Fault.KILL | Fault.STOP | Fault.SSHD:
                    program = SSHD if fault is Fault.SSHD else STANDBY
                    number = signal.SIGSTOP if fault is Fault.STOP else signal.SIGKILL
                    name = self._name(Role.WORKER, chance)
                    signal_processes(self._job, name, program, number)
                    self._timeline.slow |= {name} if fault is Fault.STOP else set()
                case Fault.DELETE | Fault.FORCE:
                    name = self._name(Role.WORKER, chance)
                    pods.delete(self._job.kubectl, name, by_force=fault is Fault.FORCE)
                case Fault.SIDECAR:
                    name = self._name(Role.LAUNCHER, chance)
                    end_sidecar(self._job, name)
                case Fault.LAUNCHER_DRAINED | Fault.LAUNCHER_LOST:
                    name = self._name(Role.LAUNCHER, chance)
                    pods.delete(self._job.kubectl, name, by_force=fault is Fault.LAUNCHER_LOST)
                case Fault.API_SERVER:
                    name = ""
                    self._site.local().restart_api_server(away_seconds=3)
            self._timeline.mark(f"{fault} {name}")

    def calm(self) -> float:
        """Inference asks for nothing more; returns when."""
        self._load.scale(0)
        return self._timeline.mark("calm")

    def _name(self, role: Role, chance: random.Random) -> str:
        """A pod that runs. Raises IndexError if none does."""
        running = [pod for pod in self._job.pods(role) if pod["status"].get("phase") == "Running"]
        return str(chance.choice(running)["metadata"]["name"])


@pytest.fixture
def chaos(cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str, engine: Engine) -> tuple[Chaos, Job]:
    job = start(cluster, namespace, launcher, engine=engine.value, checkpoint=DURABLE)
    job.wait_size(SIZE)
    job.wait_steps(20)
    return Chaos(cluster, job, inference.deploy(cluster, namespace), timeline), job


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize(
    ("launcher", "engine"),
    [("launch", Engine.HOROVOD), ("horovodrun", Engine.HOROVOD), ("launch", Engine.TORCH)],
)
@pytest.mark.usefixtures("launcher", "engine")
def test_no_seed_loses_anything(chaos: tuple[Chaos, Job], timeline: Timeline, seed: int) -> None:
    does, job = chaos
    for action in schedule(seed, ACTIONS):
        time.sleep(action.delay_seconds)
        does.strike(action.fault, random.Random(action.choice))
    calm = does.calm()
    job.wait_size(SIZE, since=calm, within_seconds=300)
    job.wait_steps(20)
    job.finish()
    check(job.account)


def check(account: Account) -> None:
    """Every step was done, every epoch saw every sample, and no world that was lost cost more than it may."""
    assert account.skipped() == []
    ends = {step["epoch"]: step["samples"] for step in surviving(account)}
    assert set(ends.values()) == {SAMPLES}, ends
    assert all(seconds < MOST_LOST_SECONDS for _, _, seconds in went_back(account)), went_back(account)


def surviving(account: Account) -> list[dict[str, Any]]:
    """The steps from which the final state descends, in their order: what was done again counts as it was done last."""
    done = {event["step"]: event for event in account.events if event["event"] == "step"}
    final = account.steps[-1]["step"]
    return [done[step] for step in sorted(done) if step <= final]


def went_back(account: Account) -> list[tuple[int, int, float]]:
    """From which step training went back to which, and how many seconds of training that has undone."""
    first_done: dict[int, float] = {}
    found = []
    for before, after in pairwise(account.steps):
        first_done.setdefault(before["step"], before["time"])
        if after["step"] <= before["step"]:
            undone = before["time"] - first_done.get(after["step"], before["time"])
            found.append((before["step"], after["step"], undone))
    return found
