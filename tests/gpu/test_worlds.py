"""Whole jobs, a process for each GPU, over both engines: worlds that grow, shrink and lose a process, with NCCL.

NCCL refuses two ranks on one GPU ("Duplicate GPU detected"), so a world of two needs two. One GPU shows a job whose
only worker is lost, and that begins again from its durable checkpoint.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS
from hvd_elastic.trainer.telemetry.gpu_figures import Gpus
from testbed.local.training import ENGINES, Training, training
from tests.gpu.machine import ONLY_WITH_GPU_TESTS, devices

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("train_on_device.py")


@pytest.fixture(params=ENGINES)
def job(tmp_path: Path, request: pytest.FixtureRequest, device: str) -> Iterator[Training]:
    store = {ENV_CHECKPOINT: f"file://{tmp_path}/durable", ENV_CHECKPOINT_STEPS: "1"}
    with training(tmp_path, engine=request.param, TEST_DEVICE=device, **store) as made:
        yield made


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """Its worlds are on."""
    kind: str = request.param
    return kind


@pytest.mark.parametrize("device", devices(2, cpu=ONLY_WITH_GPU_TESTS), indirect=True)
def test_a_world_grows_loses_a_process_and_shrinks(job: Training) -> None:
    """A world of 1, 2, 1 (killed), 2, 1 GPUs: resizes lose no step, a killed process that under way alone."""
    job.offer("gpu0")
    job.launch("-np", "1", "--min-np", "1", "--max-np", "2", script=SCRIPT)
    job.trains(1)
    job.offer("gpu0", "gpu1")
    job.trains(2)
    killed = job.kill("gpu1")
    job.offer("gpu0")
    job.trains(1)
    job.offer("gpu0", "gpu1-again")
    job.trains(2)
    job.offer("gpu1-again")
    job.trains(1)
    _check_steps(job)
    resets = {(event["cause"], event["time"] > killed) for event in job.events("reset")}
    assert resets == {("hosts", False), ("failure", True), ("hosts", True)}


@pytest.mark.parametrize("device", devices(1, cpu=ONLY_WITH_GPU_TESTS), indirect=True)
def test_a_job_on_one_gpu_begins_again_from_its_checkpoint(job: Training) -> None:
    """The only process of a job is killed: another goes on from the durable checkpoint, on the same GPU."""
    job.offer("gpu0")
    job.launch("-np", "1", "--min-np", "1", "--max-np", "1", script=SCRIPT)
    job.trains(1, steps=10)
    job.until(lambda: job.events("checkpoint", error=""), "a durable checkpoint")
    stored = max(event["saved"] for event in job.events("checkpoint", error=""))
    killed = job.kill("gpu0")
    job.offer("gpu0-again")
    job.trains(1)
    again = min(event["step"] for event in job.events("step") if event["time"] > killed)
    assert again > stored, "it has begun anew"
    assert len({place["device"] for place in job.written("process")}) == 1


@pytest.mark.parametrize("device", devices(2, cpu=ONLY_WITH_GPU_TESTS), indirect=True)
def test_each_process_of_a_worker_has_a_gpu_of_its_own(job: Training) -> None:
    """A worker of two GPUs: the Trainer takes the GPU of the local rank, and NVML's figures are of that one."""
    job.offer("worker:2")
    job.launch("-np", "2", "--min-np", "2", "--max-np", "2", script=SCRIPT)
    job.trains(2)
    places = sorted(job.written("process"), key=lambda place: int(place["local_rank"]))
    assert [place["local_rank"] for place in places] == [0, 1]
    if job.environment["TEST_DEVICE"] == "cuda":
        assert [place["device"] for place in places] == ["cuda:0", "cuda:1"]
        told = [next(iter(Gpus().read(place["local_rank"]))).uuid for place in places]
        assert [uuid.partition("-")[2] for uuid in told] == [place["uuid"] for place in places]
    _check_steps(job)


def _check_steps(job: Training) -> None:
    """No step is left out, and none was done twice but the last before a failure."""
    steps = [event["step"] for event in job.events("step", rank=0)]
    assert sorted(set(steps)) == list(range(min(steps), max(steps) + 1))
    failures = {event["time"] for event in job.events("reset", cause="failure")}
    assert len(steps) - len(set(steps)) <= len(failures)
