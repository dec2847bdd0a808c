"""Training scripts of many shapes, in worlds that change: no sample is lost, and the weights are right."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from testbed.local import forkserver
from testbed.local.training import HOSTS, Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

SCRIPT = Path(__file__).with_name("train_shapes.py")
SAMPLES, EPOCHS = 144, 2
HOLDS = (8, 16)
"""The script stands still after so many batches."""
BY_WORLD = {"branch", "own_draws", "rate_by_size"}
"""What these learn depends on how many workers they have."""

TOLERANCE = {"half": 2e-2, "compressed": 1e-3}
"""The size of a rounding, where it is not that of float64."""


def check_weights(job: Training, size: int) -> None:
    """After the job's end all ranks have the same weights, which are those of one process without a launcher."""
    assert job.ends() == 0, job.said()
    assert "workers differ" not in job.said()
    found = job.written("weights")
    assert len(found) == size
    assert all(each == found[0] for each in found), "ranks have the same bits"

    folder = job.folder / "alone"
    folder.mkdir()
    for batches in HOLDS:
        go_on(folder, batches)
    alone = Training(folder)
    environment = {**job.environment, **{name: alone.environment[name] for name in ("HVD_ELASTIC_EVENTS", "TEST_LOG")}}
    subprocess.run([*forkserver.python(), str(SCRIPT)], env=environment, check=True, timeout=240, cwd=folder)
    (undisturbed,) = alone.written("weights")
    for shape, weights in undisturbed.items():
        if shape not in BY_WORLD:
            assert found[0][shape] == pytest.approx(weights, rel=0, abs=TOLERANCE.get(shape, 1e-9)), shape


def samples_taken(job: Training) -> Counter[int]:
    return Counter(number for event in job.events("step") for number in event["taken"])


def go_on(folder: Path, batches: int) -> None:
    (folder / f"go-on-{batches}").touch()


def stands_still(job: Training, batches: int, size: int) -> None:
    job.until(lambda: job.events("step", held=batches, size=size), f"{size} hold after {batches} batches")


def resized(job: Training) -> None:
    """Have a third worker come in the midst of an epoch, and another go in that of a later one."""
    job.offer("a", "b")
    job.launch("-np", "2", "--min-np", "1", script=SCRIPT)
    stands_still(job, HOLDS[0], 2)
    job.offer("a", "b", "c")
    stands_still(job, HOLDS[0], 3)
    go_on(job.folder, HOLDS[0])
    stands_still(job, HOLDS[1], 3)
    job.offer("b", "c")
    stands_still(job, HOLDS[1], 2)
    go_on(job.folder, HOLDS[1])


@pytest.mark.core
def test_trainings_of_many_shapes(tmp_path: Path) -> None:
    with training(tmp_path, LOOP="tqdm", SAMPLES=str(SAMPLES)) as job:
        resized(job)
        check_weights(job, 2)
        assert samples_taken(job) == dict.fromkeys(range(SAMPLES), EPOCHS)


@pytest.mark.parametrize(("loop", "samples", "epochs"), [("next", SAMPLES, EPOCHS), ("list", 48, 6)])
def test_loops_that_are_not_over_batches(loop: str, samples: int, epochs: int, tmp_path: Path) -> None:
    with training(tmp_path, LOOP=loop, SAMPLES=str(samples), SHAPES="plain,accumulation") as job:
        resized(job)
        check_weights(job, 2)
        assert samples_taken(job) == dict.fromkeys(range(samples), epochs)


@pytest.mark.parametrize("each", [{}, {"EACH": "1"}], ids=["for-all", "for-each-worker"])
def test_fewer_samples_than_workers(each: dict[str, str], tmp_path: Path) -> None:
    with training(tmp_path, LOOP="for", SAMPLES="1", SHAPES="plain,gan", **each) as job:
        resized(job)
        check_weights(job, 2)
        assert samples_taken(job) == {0: 24}


def test_no_sample_at_all(tmp_path: Path) -> None:
    with training(tmp_path, LOOP="for", SAMPLES="0", SHAPES="plain") as job:
        job.offer("a", "b")
        job.launch("-np", "2", script=SCRIPT)
        check_weights(job, 2)
        assert not job.events("step")


def test_a_worker_is_killed_between_two_commits(tmp_path: Path) -> None:
    with training(tmp_path, LOOP="tqdm", SAMPLES=str(SAMPLES), KILLED="1") as job:
        job.hosts(*HOSTS)
        job.horovodrun("-np", "3", "--min-np", "1", script=SCRIPT)
        stands_still(job, HOLDS[0], 3)
        go_on(tmp_path, HOLDS[0])
        stands_still(job, HOLDS[1], 2)
        go_on(tmp_path, HOLDS[1])
        check_weights(job, 2)
