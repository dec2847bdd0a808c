"""A sharded optimizer in worlds that grow, shrink, lose a process and start again comes to what a plain one does."""

import subprocess
from pathlib import Path

import pytest

from hvd_elastic import load
from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS
from testbed.local import forkserver
from testbed.local.training import ENGINES, SCRIPT, Training, training
from tests.local.share_scenarios import loses_opposite_ranks, restores_three_at_two

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

LENGTH, EPOCHS = 303, 6

over_each_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The plain optimizer in one process, without a launcher."""
    job = Training(tmp_path_factory.mktemp("alone"), LENGTH=str(LENGTH), EPOCHS=str(EPOCHS), STEP_SECONDS="0")
    subprocess.run([*forkserver.python(), str(SCRIPT)], env=job.environment, check=True, timeout=600)
    return job


def check_like(job: Training, undisturbed: Training) -> None:
    alone = {event["step"]: event["loss"] for event in undisturbed.events("step")}
    steps = {event["step"]: event["loss"] for event in job.events("step")}
    assert steps.keys() == alone.keys()
    for step, loss in steps.items():
        assert loss == pytest.approx(alone[step], abs=2e-4), step
    (end,) = [end for end in job.written("end") if end["rank"] == 0]
    (reference,) = undisturbed.written("end")
    assert end["sum"] == pytest.approx(reference["sum"], abs=1e-3)


def options(**more: str) -> dict[str, str]:
    return {"SHARDED": "1", "LENGTH": str(LENGTH), "EPOCHS": str(EPOCHS), "STEP_SECONDS": "0.3", "MICRO": "20", **more}


@pytest.mark.core
@over_each_engine
def test_it_grows_loses_a_process_and_shrinks(tmp_path: Path, engine: str, undisturbed: Training) -> None:
    """2 -> 3, a SIGKILL that costs no committed step, and 1: the losses of the plain optimizer all along."""
    with training(tmp_path, engine=engine, **options()) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3")
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        before = max(event["step"] for event in job.events("step"))
        job.kill("b")
        job.trains(2)
        job.offer("a")
        job.trains(1)
        assert job.ends() == 0, job.said()
        assert {event["size"] for event in job.events("step")} >= {1, 2, 3}
        assert all(event["step"] >= before for event in job.events("reset", cause="failure"))
        check_like(job, undisturbed)


@over_each_engine
def test_a_checkpoint_of_three_restores_at_two_and_is_a_plain_one(
    tmp_path: Path, engine: str, undisturbed: Training
) -> None:
    place = f"file://{tmp_path}/durable"
    durable = {ENV_CHECKPOINT: place, ENV_CHECKPOINT_STEPS: "3"}
    with training(tmp_path, engine=engine, **options(**durable)) as job:
        restores_three_at_two(job, SCRIPT)
        check_like(job, undisturbed)
    saved = load(place)
    assert set(saved["optimizer"]) == {"state", "param_groups"}
    shapes = [tuple(each["momentum_buffer"].shape) for each in saved["optimizer"]["state"].values()]
    assert shapes == [(32, 64), (32,), (32,), (32,), (10, 32), (10,)]


@over_each_engine
def test_opposite_ranks_lost_at_once_cost_the_steps_since_the_durable_checkpoint(
    tmp_path: Path, engine: str, undisturbed: Training
) -> None:
    """Ranks 1 and 3 of 4 have each other's copies: the others say so, and go back together."""
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/durable", ENV_CHECKPOINT_STEPS: "3"}
    with training(tmp_path, engine=engine, **options(**durable)) as job:
        loses_opposite_ranks(job, SCRIPT)
        check_like(job, undisturbed)
