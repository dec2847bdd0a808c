"""Samplers that were built for another world: found where they would make workers wait for ever, and nowhere else."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic.distributed_samplers import SamplerShare, SamplerWatch, StaleSamplerError, is_stale
from testbed.local.training import training
from testbed.thread_world import Meeting, ThreadTrainingWorld

SCRIPT = Path(__file__).with_name("train_sampled.py")
ROOT = SCRIPT.parents[3]

SHARES = st.integers(1, 6).flatmap(lambda of: st.integers(0, of - 1).map(lambda rank: SamplerShare(of=of, rank=rank)))


@given(world=SHARES, on_host=SHARES)
def test_what_takes_the_workers_own_share_is_never_stale(world: SamplerShare, on_host: SamplerShare) -> None:
    assert not is_stale(world, built=world, worker=world, on_host=on_host)


@given(taken=SHARES, built=SHARES, worker=SHARES, on_host=SHARES)
def test_what_never_was_a_share_of_its_world_is_never_stale(
    taken: SamplerShare, built: SamplerShare, worker: SamplerShare, on_host: SamplerShare
) -> None:
    assert not is_stale(taken, built=None, worker=worker, on_host=on_host)
    assert taken == built or not is_stale(taken, built=built, worker=worker, on_host=on_host)


def test_a_share_of_a_former_world_is_stale() -> None:
    alone = SamplerShare(of=1, rank=0)
    before, now = SamplerShare(of=3, rank=1), SamplerShare(of=2, rank=1)
    assert is_stale(before, built=before, worker=now, on_host=alone)
    assert is_stale(alone, built=alone, worker=now, on_host=alone), "a standby builds it in a world of one"
    moved = SamplerShare(of=3, rank=0)
    assert is_stale(before, built=before, worker=moved, on_host=alone), "another took its rank"


def test_a_share_of_the_own_host_stays_right() -> None:
    on_host = SamplerShare(of=2, rank=1)
    assert not is_stale(on_host, built=on_host, worker=SamplerShare(of=4, rank=3), on_host=on_host)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[SamplerWatch, ThreadTrainingWorld]:
    """A watch over torch's class in rank 1 of a world of 3, in place of the process's own if that is installed."""
    for name in ("__init__", "__iter__"):
        monkeypatch.setattr(DistributedSampler, name, inspect.unwrap(getattr(DistributedSampler, name)))
    world = ThreadTrainingWorld(Meeting(3, ranks_per_host=1), 1)
    watch = SamplerWatch(world)
    watch.install()
    return watch, world


def sampler_of(*, of: int, rank: int) -> "DistributedSampler[int]":
    data: Any = range(12)
    return DistributedSampler(data, num_replicas=of, rank=rank, shuffle=False)


def test_a_stale_sampler_ends_training_and_is_warned_of_after_it(
    watched: tuple[SamplerWatch, ThreadTrainingWorld], caplog: pytest.LogCaptureFixture
) -> None:
    watch, world = watched
    sampler, fixed = sampler_of(of=3, rank=1), sampler_of(of=4, rank=1)
    with watch.training(object()):
        assert list(sampler) == [1, 4, 7, 10]
    world.enter(Meeting(2, ranks_per_host=1), 1)
    assert list(fixed) == [1, 5, 9]
    assert caplog.messages == []
    with (
        watch.training(object()),
        pytest.raises(StaleSamplerError, match="rank 1 of 3 workers, and this is rank 1 of 2"),
    ):
        iter(sampler)
    assert list(sampler) == [1, 4, 7, 10]
    assert len(caplog.messages) == 1
    with watch.training(object()):
        assert list(sampler_of(of=2, rank=1)) == [1, 3, 5, 7, 9, 11]


def test_outside_of_a_world_no_sampler_is_stale(watched: tuple[SamplerWatch, ThreadTrainingWorld]) -> None:
    watch, world = watched
    sampler = sampler_of(of=3, rank=1)
    world.shutdown()
    before_any_world = sampler_of(of=3, rank=2)
    with watch.training(object()):
        assert [next(iter(sampler)), next(iter(before_any_world))] == [1, 2]
        world.enter(Meeting(2), 0)
        assert next(iter(before_any_world)) == 2


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_sampler_that_is_built_once_ends_the_job_at_its_first_resize(tmp_path: Path) -> None:
    with training(tmp_path, BUILT="once") as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        assert "The job ends with exit 79 when it is used after a resize" in job.said()
        job.offer("a", "b", "c")
        assert job.ends() == Exit.SCRIPT_MISTAKE, job.said()
        assert "a DistributedSampler was built for rank" in job.said()
        assert "build it in the function that elastic.run calls" in job.said()


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("built", ["training", "callback", "updated", "fixed"])
def test_a_script_that_renews_its_sampler_is_never_stopped(tmp_path: Path, built: str) -> None:
    with training(tmp_path, BUILT=built) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        job.offer("b", "c")  # ranks move, too
        job.trains(2)
        assert "DistributedSampler" not in job.said()


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_sampler_that_a_standby_built_alone_ends_the_job_at_its_entry() -> None:
    command = [
        sys.executable,
        "-m",
        "hvd_elastic.cli",
        "run",
        "--workers",
        "2",
        "--standby",
        "solo",
        "--",
        "python",
        str(SCRIPT),
    ]
    environment = {**os.environ, "BUILT": "once", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=240, env=environment)
    assert done.returncode == Exit.SCRIPT_MISTAKE, done.stderr
    assert "was built for rank 0 of 1 workers" in done.stdout + done.stderr


EVALUATES_LATER = """
import logging, sys
import horovod.torch as hvd
import torch
import hvd_elastic as elastic
from torch.utils.data import DistributedSampler

logging.basicConfig(level=logging.WARNING)
elastic.init()
sampler = DistributedSampler(range(10), num_replicas=hvd.size(), rank=hvd.rank())
resized = sys.argv[1] == "resized"

def size():
    return 2 if resized else 1

@elastic.run
def train(state):
    assert len(list(sampler)) == 10

train(hvd.elastic.TorchState(epoch=0))
hvd.size = size
print(len(list(sampler)))
"""


@pytest.mark.process
@pytest.mark.parametrize("resized", ["resized", "same"])
def test_after_training_a_stale_sampler_is_told_and_no_more(tmp_path: Path, resized: str) -> None:
    script = tmp_path / "evaluate.py"
    script.write_text(EVALUATES_LATER)
    done = subprocess.run(
        [sys.executable, str(script), resized], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr
    assert ("was built for rank 0 of 1 workers" in done.stderr) == (resized == "resized")
