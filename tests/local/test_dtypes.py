"""Weights in bfloat16 and complex ones, in worlds that change: as in one undisturbed process."""

import subprocess
from pathlib import Path

import pytest

from testbed.local import forkserver
from testbed.local.training import ENGINES, HOSTS, Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("train_dtypes.py")
STEP_SECONDS = "0.2"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The loss of each step, with the plain optimizer in one process."""
    job = Training(tmp_path_factory.mktemp("alone"), STEP_SECONDS="0")
    subprocess.run([*forkserver.python(), str(SCRIPT)], env=job.environment, check=True, timeout=240)
    return losses(job)


def losses(job: Training) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in job.events("step")}


def check_like(job: Training, undisturbed: dict[int, float]) -> None:
    assert losses(job) == pytest.approx(undisturbed, rel=0.02, abs=1e-3)
    assert undisturbed[60] < undisturbed[1] / 3, "it has learned"
    ends = job.written("end")
    assert len(ends) > 1
    assert all(end == ends[0] for end in ends), "ranks have the same bits"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plain_optimizer_under_the_engines_launcher(
    tmp_path: Path, engine: str, undisturbed: dict[int, float]
) -> None:
    with training(tmp_path, engine=engine, STEP_SECONDS=STEP_SECONDS) as job:
        job.offer_usual(*HOSTS[:2])
        job.launch_usual("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        job.offer_usual(*HOSTS)
        job.trains(3)
        job.offer_usual(*HOSTS[:2])
        job.trains(2)
        assert job.ends() == 0, job.said()
        check_like(job, undisturbed)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sharded_optimizer_that_loses_a_process(tmp_path: Path, engine: str, undisturbed: dict[int, float]) -> None:
    with training(tmp_path, engine=engine, STEP_SECONDS=STEP_SECONDS, SHARDED="1") as job:
        job.offer("a", "b", "c")
        job.launch("-np", "3", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(3)
        job.kill("b")
        job.trains(2)
        job.offer("a", "c", "d")
        job.trains(3)
        assert job.ends() == 0, job.said()
        check_like(job, undisturbed)
