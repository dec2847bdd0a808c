"""All features and all faults in one random schedule: the job's result is that of an undisturbed run in one process."""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS, ENV_GRACE_SECONDS, ENV_INCARNATION, Exit
from hvd_elastic.worker import drain
from testbed.local import forkserver
from testbed.local.training import ENGINES, Training
from tests.local.mixed_schedule import AimedEvent, Event, Fault, aimed, schedule

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("train_mixed.py")
SEEDS = int(os.environ.get("MIXED_SEEDS", "2"))
FIRST_SEED = int(os.environ.get("MIXED_FIRST_SEED", "0"))
TOLERANCE = 1e-9
"""In float64. Only the order of summation differs."""
MOST_WORKERS = 3
GRACE_SECONDS = 10
EPOCHS = 5
LENGTH = {"labelled": 241, "middle": 35, "unlabelled": 101, "end": 35}
"""Samples of each pass of an epoch."""
BATCH = {"labelled": 8, "unlabelled": 12}
"""Samples of a step."""

World = str
Taken = list[tuple[int, str, int, float]]
"""Epoch, pass, sample and learning rate of all that one commit covers, sorted."""


class History:
    """What a job's workers have written, and which of it counts."""

    def __init__(self, job: Training) -> None:
        self.ends: list[dict[str, Any]] = job.written("end")
        self._taken: list[dict[str, Any]] = job.written("taken")
        self._steps = job.events("step")

    @cached_property
    def end(self) -> dict[str, Any]:
        return self.ends[0]

    def world_of(self, commit: int) -> World:
        """The world that made this commit, of the commits that the final state descends from."""
        return str(next(world for before, world in reversed(self.end["worlds"]) if before < commit))

    @cached_property
    def surviving(self) -> dict[int, Taken]:
        """What each commit of the final state's line covers. All else was undone."""
        found: dict[int, Taken] = {}
        for each in filter(self._counts, self._taken):
            own = [(each["epoch"], each["pass"], sample, each["rate"]) for sample in each["samples"]]
            found[each["commit"]] = sorted([*found.get(each["commit"], []), *own])
        return found

    def _counts(self, taken: dict[str, Any]) -> bool:
        return bool(taken["commit"] <= self.end["commits"] and self.world_of(taken["commit"]) == taken["world"])

    @cached_property
    def padded(self) -> Counter[tuple[int, str]]:
        """Batches that were only padding, by epoch and pass."""
        counting = filter(self._counts, self._taken)
        return Counter((each["epoch"], each["pass"]) for each in counting if not each["samples"])

    @cached_property
    def worlds(self) -> dict[int, set[World]]:
        """The worlds that have trained in each epoch, whether or not it counts."""
        return {epoch: {each["world"] for each in self._taken if each["epoch"] == epoch} for epoch in range(EPOCHS)}

    @cached_property
    def digests(self) -> dict[int, float]:
        """Of the weights and their average, by commit of the final state's line. One worker that told of it will do."""
        return {
            each["step"]: each["digest"]
            for each in self._steps
            if each["step"] <= self.end["commits"] and self.world_of(each["step"]) == each["world"]
        }


class MixedJob(Training):
    """A job that is struck by a schedule, and the parts of the platform that bring it back."""

    def __init__(self, folder: Path, *, engine: str, seed: int) -> None:
        every = random.Random(seed).randrange(3, 20)
        store = {
            ENV_CHECKPOINT: f"file://{folder}/store",
            ENV_CHECKPOINT_STEPS: str(every),
            ENV_GRACE_SECONDS: str(GRACE_SECONDS),
        }
        self.gates = folder / "gates"
        super().__init__(folder, engine=engine, STEP_SECONDS="0.01", TEST_GATES=str(self.gates), **store)
        (folder / "at").mkdir()
        self.gates.mkdir()
        self.names: list[str] = []
        self.struck: list[str] = []
        self.left: list[tuple[float, int]] = []
        """When all had left by themselves, as a whole world, and what they had committed."""
        self._struck_at = 0.0
        """When a process was killed last: until the next world the survivors may hold different commits."""
        self._made = self._generation = self._launchers = 0
        self._killed_since_launch = False

    def fresh(self, count: int) -> list[str]:
        """Names that no host had before."""
        self._made += count
        return [f"h{number}" for number in range(self._made - count, self._made)]

    def offer(self, *aliases: str, **pods: str) -> None:
        self.names = [*aliases, *pods]
        super().offer(*aliases, **pods)

    def begin(self) -> None:
        """Start a launcher, as its Job does: also after one that was killed or has lost all processes.

        Its sidecar begins with it, and so the list of hosts is a new one.
        """
        self.offer(*self.names)
        self._launchers += 1
        self._killed_since_launch = False
        self.environment[ENV_INCARNATION] = f"launcher-{self._launchers}"
        command = [sys.executable, "-m", "hvd_elastic.cli", "launch", "--run-dir", str(self.run_dir)]
        where = ["--host-discovery-script", str(self.run_dir / "discover-hosts"), "--local-hosts"]
        limits = ["-np", "1", "--max-np", str(MOST_WORKERS), "--settle", "0.05"]
        self.start([*command, *where, str(self.folder / "at"), *limits, *forkserver.python(), str(SCRIPT)])

    def play(self, plan: tuple[Event, ...]) -> None:
        """Let everything happen, and wait for the job's end."""
        self.names = self.fresh(2)
        self.begin()
        for event in plan:
            self.goes_on(lambda commit=event.commit: self.reached() >= commit, f"commit {event.commit}")
            time.sleep(event.delay_seconds)
            self.struck.append(f"{self.reached()}: {event.fault}")
            self.strike(event.fault, random.Random(event.choice))
        self.goes_on(lambda: self.code() == 0, "the end of training")

    def play_aimed(self, plan: tuple[AimedEvent, ...]) -> None:
        """Let each thing happen while a worker stands in its window, and wait for the job's end."""
        for event in plan:
            (self.gates / event.gate).touch()
        self.names = self.fresh(2)
        self.begin()
        for event in plan:
            self.goes_on(lambda gate=event.gate: gate in self.written("window"), event.gate)
            self.struck.append(f"{event.gate}: {event.fault}")
            self.strike(event.fault, random.Random(event.choice))
            (self.gates / event.gate).unlink()
        self.goes_on(lambda: self.code() == 0, "the end of training")

    def strike(self, fault: Fault, chance: random.Random) -> None:
        match fault:
            case Fault.GROW:
                self.offer(*[*self.names, *self.fresh(1)][-MOST_WORKERS:])
            case Fault.SHRINK:
                staying = chance.sample(self.names, k=len(self.names) - 1)
                self.announce([name for name in self.names if name not in staying])
                self.offer(*(staying or self.fresh(1)))
            case Fault.REPLACE:
                self.announce(self.names)
                self.offer(*self.fresh(chance.randint(1, MOST_WORKERS)))
            case Fault.KILL:
                victims = chance.sample(self.names, k=min(len(self.names), chance.randint(1, 2)))
                self.sigkill([process for name in victims for process in self.processes(name)])
                self.offer(*[*(name for name in self.names if name not in victims), *self.fresh(len(victims))])
            case Fault.KILL_LOADER:
                self.kill_loader(chance)
            case Fault.PREEMPT_ALL:
                self.preempt_all()
                self.offer(*self.fresh(chance.randint(1, MOST_WORKERS)))
            case Fault.LOSE_ALL:
                self.offer()
                self.sigkill(self.processes())
                self.goes_on(lambda: self.size() == 0, "nobody trains")
                self.offer(*self.fresh(chance.randint(1, MOST_WORKERS)))
            case Fault.KILL_LAUNCHER:
                assert self.process is not None
                self._struck_at = time.time()
                self.process.kill()
                self.process.wait()
                self.begin()

    def sigkill(self, processes: list[psutil.Process]) -> None:
        if processes:
            self._killed_since_launch, self._struck_at = True, time.time()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def announce(self, names: list[str]) -> None:
        """Do what PID 1 of these pods does when they are told to end."""
        for name in names:
            (self.folder / "at" / name).mkdir(exist_ok=True)
            drain.announce(self.folder / "at" / name, "this pod is about to end")

    def preempt_all(self) -> None:
        """All leave by themselves, and what they have committed is durable.

        If the writer is killed in that moment, the first of the others stores what it holds: it may be a step behind.
        Nobody waits for more than the store, which a busy disk may keep for longer than a pod's grace.
        """
        self.announce(self.names)
        self.offer()
        self.goes_on(lambda: not self.processes(), "all have left")
        last = self.events("step")[-1]
        formed = max(event["time"] for event in self.events() if event["event"] in {"joined", "reset"})
        if self._struck_at < formed < last["time"]:
            self.left.append((time.time(), last["step"]))
        self.goes_on(lambda: self.size() == 0, "nobody trains")

    def kill_loader(self, chance: random.Random) -> None:
        found: list[psutil.Process] = []

        def some() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):
                found[:] = [
                    each for name in self.names for process in self.processes(name) for each in process.children()
                ]
            return bool(found)

        self.goes_on(some, "a loader process")
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(found).kill()
        self._struck_at = time.time()

    def reached(self) -> int:
        return max((event["step"] for event in self.events("step")), default=0)

    def size(self) -> int:
        status = json.loads((self.run_dir / "status.json").read_text())
        return int(status["world_size"]) if status["state"] == "running" else 0

    def code(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def goes_on(self, true: Any, what: str) -> None:
        """Wait for a condition. A launcher whose processes were all killed is started again, as by its Job."""
        deadline = time.monotonic() + 200
        while not true():
            if self.code() == Exit.ALL_WORKERS_LOST and self._killed_since_launch:
                self.struck.append(f"{self.reached()}: the launcher starts again")
                self.begin()
            assert time.monotonic() < deadline, f"not in time: {what}; {self.struck}\n{self.said()}"
            assert self.code() in (None, 0, Exit.ALL_WORKERS_LOST), f"{self.code()}: {self.struck}\n{self.said()}"
            assert self.code() is None or true(), f"the job has ended before {what}: {self.struck}\n{self.said()}"
            time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The run in one process, without a launcher."""
    job = Training(tmp_path_factory.mktemp("alone"))
    subprocess.run([*forkserver.python(), str(SCRIPT)], env=job.environment, check=True, timeout=240)
    return History(job)


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MixedJob]:
    made = MixedJob(tmp_path, engine=request.getfixturevalue("engine"), seed=request.getfixturevalue("seed"))
    try:
        yield made
    finally:
        made.close()


over_each_engine = pytest.mark.parametrize("engine", ENGINES)


@over_each_engine
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_no_schedule_shows_in_the_result(seed: int, job: MixedJob, undisturbed: History) -> None:
    job.play(schedule(seed, undisturbed.end["commits"]))
    history = History(job)
    assert history.ends, job.said()
    for moment, commit in job.left:
        after = next(event for event in job.events("step") if event["time"] > moment)
        assert after["step"] == commit + 1, job.struck
    check(history, undisturbed, job.struck)


@over_each_engine
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_no_fault_in_any_window_shows_in_the_result(seed: int, job: MixedJob, undisturbed: History) -> None:
    job.play_aimed(aimed(seed, EPOCHS))
    history = History(job)
    assert history.ends, job.said()
    check(history, undisturbed, job.struck)


def check(history: History, undisturbed: History, struck: list[str]) -> None:
    """Each sample and each weight of the final state is that of the undisturbed run."""
    reference = undisturbed.end
    check_every_sample_once(history)
    assert history.surviving == undisturbed.surviving, struck
    drifted = [n for n, each in sorted(history.digests.items()) if abs(each - undisturbed.digests[n]) > TOLERANCE * 50]
    assert not drifted, f"from commit {drifted[0]} on: {struck}, {history.end['worlds']}"
    for end in history.ends:
        check_result(end, reference)
    check_account(history, reference)


def check_every_sample_once(history: History) -> None:
    taken = Counter(each[:3] for commit in history.surviving.values() for each in commit)
    due = ((epoch, name, sample) for epoch in range(EPOCHS) for name in LENGTH for sample in range(LENGTH[name]))
    assert taken == Counter(due)


def check_result(end: dict[str, Any], reference: dict[str, Any]) -> None:
    for name in ("weights", "average", "momentum", "best"):
        assert end[name] == pytest.approx(reference[name], abs=TOLERANCE, rel=0), name
    for name in ("groups", "scheduler", "schedulers", "steps", "commits"):
        assert end[name] == reference[name], name
    for (*found, error), (*expected, true_error) in zip(end["history"], reference["history"], strict=True):
        assert found == expected
        assert error == pytest.approx(true_error, abs=TOLERANCE, rel=0), found


def check_account(history: History, reference: dict[str, Any]) -> None:
    """The samples due, seen and uncommitted are those of one process; padding and repetitions depend on the worlds."""
    for epoch, (account, expected) in enumerate(zip(history.end["accounts"], reference["accounts"], strict=True)):
        for name, (*counts, padded, repeated) in account.items():
            assert counts == expected[name][:3], (epoch, name)
            if name != "validation":  # of which the account has one pass, and `history` both
                assert padded == history.padded[epoch, name]
                most = BATCH[name] * (len(history.worlds[epoch]) - 1)  # each step is committed: a failure undoes one
                assert repeated <= most, (epoch, name)
