"""A model that `fully_shard` has divided, in worlds that grow, shrink, lose processes and start again."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hvd_elastic import load
from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS, Engine
from testbed.local import forkserver
from testbed.local.training import Training, training
from tests.local.share_scenarios import loses_opposite_ranks, restores_three_at_two
from tests.local.taken_samples import taken
from tests.torch_division import needs_division

pytestmark = [pytest.mark.process, pytest.mark.timeout(900), needs_division]

SCRIPT = Path(__file__).with_name("train_divided.py")
LENGTH, EPOCHS = 303, 6


def settings(**more: str) -> dict[str, str]:
    return {"engine": Engine.TORCH, "LENGTH": str(LENGTH), "EPOCHS": str(EPOCHS), "MICRO": "20", **more}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The plain model and the plain optimizer in one process, without a launcher."""
    job = Training(tmp_path_factory.mktemp("alone"), **settings(PLAIN="1", STEP_SECONDS="0"))
    command = [*forkserver.python(), str(SCRIPT)]
    done = subprocess.run(command, check=False, env=job.environment, timeout=400, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return job


def check_like(job: Training, undisturbed: Training) -> None:
    alone = {event["step"]: event["loss"] for event in undisturbed.events("step")}
    steps = {event["step"]: event["loss"] for event in job.events("step")}
    assert steps.keys() == alone.keys()
    for step, loss in steps.items():
        assert loss == pytest.approx(alone[step], abs=2e-4), step
    ends = job.written("end")
    (reference,) = undisturbed.written("end")
    assert [end["sum"] for end in ends] == [pytest.approx(reference["sum"], abs=1e-2)] * len(ends)


@pytest.mark.core
def test_a_divided_model_lives_through_growth_a_kill_and_a_shrink(tmp_path: Path, undisturbed: Training) -> None:
    """Every sample of every epoch once; the losses and weights of the plain model; and a part of it on each rank."""
    with training(tmp_path, **settings(STEP_SECONDS="0.3")) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        before = max(event["step"] for event in job.events("step"))
        job.kill("b")
        job.trains(2)
        job.offer("c")  # the eldest goes
        job.trains(1)
        assert job.ends() == 0, job.said()
        assert all(event["step"] >= before for event in job.events("reset", cause="failure"))
        check_like(job, undisturbed)

        _, seen = taken(job.written("took"))
        assert seen == {epoch: Counter(range(LENGTH)) for epoch in range(EPOCHS)}
        whole = max(event["held"] for event in undisturbed.written("took"))
        most = {size: max(e["held"] for e in job.written("took") if e["size"] == size) for size in (1, 2, 3)}
        assert most[1] == whole
        assert most[2] < 0.6 * whole
        assert most[3] < 0.45 * whole


def test_gradients_that_are_averaged_once_a_step_come_to_the_same(tmp_path: Path, undisturbed: Training) -> None:
    """With torch's `set_requires_gradient_sync`; a step that a kill has ended in between is taken again."""
    with training(tmp_path, **settings(STEP_SECONDS="0.2", SYNC="last", MICRO="10")) as job:
        job.offer("a", "b", "c")
        job.launch("-np", "3", "--min-np", "2", "--max-np", "3", script=SCRIPT)
        job.trains(3)
        job.kill("b")
        job.trains(2)
        assert job.ends() == 0, job.said()
        check_like(job, undisturbed)


def test_a_checkpoint_of_three_restores_at_two_and_is_a_plain_one(tmp_path: Path, undisturbed: Training) -> None:
    place = f"file://{tmp_path}/durable"
    durable = {ENV_CHECKPOINT: place, ENV_CHECKPOINT_STEPS: "3"}
    with training(tmp_path, **settings(STEP_SECONDS="0.3", **durable)) as job:
        restores_three_at_two(job, SCRIPT)
        check_like(job, undisturbed)
    saved = load(place)
    assert tuple(saved["model"]["0.0.weight"].shape) == (16, 16)
    assert set(saved["optimizer"]) == {"state", "param_groups"}


def test_opposite_ranks_lost_at_once_cost_the_steps_since_the_durable_checkpoint(
    tmp_path: Path, undisturbed: Training
) -> None:
    """Ranks 1 and 3 of 4 have each other's copies: the others say so, and go back together."""
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/durable", ENV_CHECKPOINT_STEPS: "3"}
    with training(tmp_path, **settings(STEP_SECONDS="0.3", **durable)) as job:
        loses_opposite_ranks(job, SCRIPT)
        check_like(job, undisturbed)
