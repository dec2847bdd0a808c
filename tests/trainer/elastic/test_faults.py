"""Processes that are killed at any point, and pods that all leave at once, with real Horovod under our launcher."""

import contextlib
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT,
    ENV_CHECKPOINT_STEPS,
    ENV_INCARNATION,
    ENV_RUN_DIR,
    HOSTS_SCRIPT,
    Exit,
)
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder
from testbed.local.training import Event, Training
from tests.hvd_elastic.worker.pods import Yard, make_yard

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("train_faulty.py")
LENGTH, BATCH, INTERVAL = 110, 20, 5


class Faulty(Training):
    """A job whose processes die where they are ordered to."""

    def adopt(self, *flags: str) -> None:
        """Start our launcher, whose processes are the standbys of the pods below the job's folder."""
        ours = [sys.executable, "-m", "hvd_elastic.cli", "launch", "--run-dir", str(self.run_dir), *flags]
        where = ["--host-discovery-script", str(self.run_dir / HOSTS_SCRIPT), "--local-hosts", str(self.folder)]
        command = f'exec "${ENV_RUN_DIR}/adopt" {sys.executable} {SCRIPT}'
        self.start([*ours, *where, "sh", "-c", command])

    def order(self, host: str, point: str, how: str = "") -> Path:
        """Have the process of `host` die when it comes to `point`."""
        path = Path(self.environment["TEST_ORDERS"]) / f"{host}@{point}"
        path.write_text(how)
        return path

    def dies(self, *orders: Path) -> None:
        """Wait until the orders were carried out."""
        self.until(lambda: not any(order.exists() for order in orders), f"deaths at {[o.name for o in orders]}")


@contextlib.contextmanager
def faulty(folder: Path, **environment: str) -> Iterator[Faulty]:
    orders = folder / "orders"
    orders.mkdir()
    job = Faulty(folder, TEST_ORDERS=str(orders), TEST_LENGTH=str(LENGTH), TEST_BATCH=str(BATCH), **environment)
    try:
        yield job
    finally:
        job.close()


def test_a_kill_at_any_point_repeats_one_commit_at_most_and_loses_no_sample(tmp_path: Path) -> None:
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/durable", ENV_CHECKPOINT_STEPS: str(INTERVAL)}
    with faulty(tmp_path, **durable, **{ENV_INCARNATION: "one"}) as job:
        _kill_one_after_the_other(job)
        last = max(event["step"] for event in job.events("step"))
        _begin_again_from_the_durable_checkpoint(job, last)
    check_steps(job.events("step"))


def _kill_one_after_the_other(job: Faulty) -> None:
    job.offer("a", "b", "c")
    job.launch("-np", "3", "--min-np", "1", "--max-np", "3", script=SCRIPT)
    job.trains(3)
    job.dies(job.order("b", "rendezvous"), job.order("c", "commit"))
    job.trains(1)

    receiving = job.order("c-1", "broadcast")
    job.offer("a", "b-1", "c-1")
    job.dies(receiving)
    job.trains(2)
    job.dies(job.order("b-1", "committed"))
    job.trains(1)

    job.offer("a", "b-2", "c-2")
    job.trains(3)
    job.dies(job.order("c-2", "sync"), job.order("a", "uploaded"))
    job.trains(1)
    assert job.events("step")[-1]["host"] == "b-2", "the process that is left goes on, as rank 0 and the writer"
    job.dies(job.order("b-2", "manifest"))
    assert job.ends() == Exit.ALL_WORKERS_LOST


def _begin_again_from_the_durable_checkpoint(job: Faulty, last: int) -> None:
    (job.folder / "at").rmdir()
    job.environment[ENV_INCARNATION] = "two"
    job.offer("d")
    job.launch("-np", "1", "--min-np", "1", "--max-np", "1", script=SCRIPT)
    job.trains(1)
    first = next(event["step"] for event in job.events("step") if event["host"] == "d")
    assert last - INTERVAL <= first - 1 <= last, "from the manifest that was written just before the last death"


@pytest.mark.core
@pytest.mark.needs_patch("init-error")
def test_a_death_inside_init_costs_nobody_else(tmp_path: Path) -> None:
    """Stock Horovod ends all others there (exit 134): they are past the join barrier, and Gloo is forming the world."""
    seconds = random.Random(4)
    with faulty(tmp_path) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "5", script=SCRIPT)
        job.trains(2)
        for attempt in range(4):
            doomed = [f"{attempt}-{which}" for which in range(3)]
            orders = [job.order(host, "init", f"{seconds.uniform(0, 0.12):.3f}") for host in doomed]
            job.offer("a", "b", *doomed)
            job.dies(*orders)
            job.trains(2)
        order = job.order("a", "init", "0.02")
        job.offer("a", "b", "c")
        job.dies(order)
        job.trains(2)
        assert {event["host"] for event in job.events("step", size=2)[-4:]} == {"b", "c"}
        assert len({event["pid"] for event in job.events("step", host="b")}) == 1, "it never had to begin again"
    check_steps(job.events("step"))


@pytest.mark.needs_patch("gloo-message")
def test_a_death_in_the_middle_of_a_message_is_noticed_at_once(tmp_path: Path) -> None:
    """Stock Gloo tells peers that wait for a message, but not one that is receiving it: that one waits the time-out."""
    with faulty(tmp_path, TEST_BALLAST=str(60_000_000)) as job:
        assert int(job.environment["HOROVOD_GLOO_TIMEOUT_SECONDS"]) > 240, "longer than `trains` waits"
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        handing_over = job.order("a", "broadcast", "sending 2")
        job.offer("a", "b", "c")
        job.dies(handing_over)
        job.trains(2)
        began = {event["pid"] for event in job.events("step", host="b")}
        assert len(began) == 1, "the launcher wrote it off for its silence, and it had to begin again"


@pytest.mark.needs_patch("process-set-removal")
def test_a_death_costs_nobody_else_where_the_script_has_process_sets_of_its_own(tmp_path: Path) -> None:
    """Stock Horovod ends the survivors (issue 4021): it goes on to negotiate with the dead about their removal."""
    with faulty(tmp_path, HOROVOD_DYNAMIC_PROCESS_SETS="1") as job:
        job.offer("a", "b", "c")
        job.launch("-np", "3", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(3)
        job.dies(job.order("c", "committed"))
        job.trains(2)
        while_adding = job.order("d", "add")
        job.offer("a", "b", "d")
        job.dies(while_adding)
        job.trains(2)
        job.dies(job.order("a", "commit", "0.01"))
        job.trains(1)
        job.offer("b", "e", "f")
        job.trains(3)
        assert len({event["pid"] for event in job.events("step", host="b")}) == 1, "it never had to begin again"
    check_steps(job.events("step"))


@pytest.mark.core
def test_when_all_pods_leave_the_job_goes_on_with_others_from_their_last_step(tmp_path: Path) -> None:
    """Two leave at once. The grace of ten minutes is not waited out for a place that no launcher can give."""
    yard = make_yard(tmp_path, real=True)
    shared = {"TEST_ORDERS": str(tmp_path), "TEST_LENGTH": str(LENGTH), "TEST_BATCH": str(BATCH)}
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/durable", ENV_CHECKPOINT_STEPS: "100000"}
    job = Faulty(tmp_path, **shared, **durable)
    command = [sys.executable, str(SCRIPT)]
    with yard.pod(*command, grace=600, env=shared) as one, yard.pod(*command, grace=600, env=shared) as other:
        try:
            pods = {"a": one, "b": other}
            for pod in pods.values():
                pod.ready()
            job.offer(**{alias: pod.run_dir.name for alias, pod in pods.items()})
            job.adopt("-np", "2", "--min-np", "1", "--max-np", "2")
            job.trains(2)
            job.offer()
            for pod in pods.values():
                pod.process.terminate()
            assert [pod.process.wait(240) for pod in pods.values()] == [0, 0]
            assert all("grace is over" not in pod.log_text for pod in pods.values())
            last = max(event["step"] for event in job.events("step"))
            _goes_on(job, yard, command, env=shared)
        finally:
            job.close()
    assert min(event["step"] for event in job.events("step", host="c")) == last + 1
    check_steps(job.events("step"))


def _goes_on(job: Faulty, yard: Yard, command: list[str], *, env: dict[str, str]) -> None:
    """A pod that comes later trains under the same launcher."""
    with yard.pod(*command, grace=600, env=env) as late:
        late.ready()
        job.offer(c=late.run_dir.name)
        job.trains(1)


def check_steps(events: list[Event]) -> None:
    """A step has the same samples, and the same weights after it, in every process and at every repetition."""
    steps: dict[int, list[Event]] = {}
    for event in events:
        steps.setdefault(event["step"], []).append(event)
    assert sorted(steps) == list(range(1, max(steps) + 1)), "no step was left out"
    per_epoch = -(-LENGTH // BATCH)
    for step, same in steps.items():
        epoch, index = divmod(step - 1, per_epoch)
        position = min(LENGTH, (index + 1) * BATCH)
        assert {(event["epoch"], event["samples"]) for event in same} == {(epoch, position)}, same
        for event in same:
            assert event["taken"] == expected(epoch, index * BATCH, event["rank"], event["size"]), event
            assert event["total"] == pytest.approx(same[0]["total"], abs=1e-5), same
    for pid in {event["pid"] for event in events}:
        mine = [event["step"] for event in events if event["pid"] == pid]
        assert all(later > earlier for earlier, later in itertools.pairwise(mine)), "what was committed is not repeated"


def expected(epoch: int, position: int, rank: int, size: int) -> list[int]:
    """The samples of one worker in one step, by the rule itself."""
    order = SampleOrder(LENGTH, seed=4, epoch=epoch).at(np.arange(LENGTH))
    plan = EpochPlan(
        length=LENGTH, position=position, policy=BatchPolicy(global_size=BATCH), rank=rank, size=size, drop_last=False
    )
    (part, *_) = plan.micro_batches()
    start = position + plan.samples_before(min(BATCH, LENGTH - position))
    return [int(sample) for sample in order[start : start + part.count]] if part.weight else []
