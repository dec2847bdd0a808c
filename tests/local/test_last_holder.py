"""The writer of a world is killed, and all that are left are told to end: what they hold is stored before they go."""

from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS, ENV_GRACE_SECONDS
from hvd_elastic.worker import drain
from testbed.local.training import Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

GRACE_SECONDS = 60


def host_of_rank(job: Training, rank: int) -> str:
    return str(job.events("step", rank=rank)[-1]["host"])


@pytest.mark.parametrize("size", [2, 3])
def test_a_worker_that_is_left_without_the_writer_does_not_sleep_through_its_grace(size: int, tmp_path: Path) -> None:
    """No world can be formed of those that are left, and the newcomers have not come. The first of them stores."""
    names = [f"h{number}" for number in range(size)]
    rarely = {ENV_CHECKPOINT: f"file://{tmp_path}/store", ENV_CHECKPOINT_STEPS: "100000"}
    with training(
        tmp_path, EPOCHS="400", STEP_SECONDS="0.05", **rarely, **{ENV_GRACE_SECONDS: str(GRACE_SECONDS)}
    ) as job:
        job.offer(*names)
        job.launch("-np", str(size), "--min-np", str(size))
        job.trains(size)
        writer = host_of_rank(job, 0)
        job.kill(writer)
        for name in set(names) - {writer}:
            (tmp_path / "at" / name).mkdir(exist_ok=True)
            drain.announce(tmp_path / "at" / name, "this pod is about to end")
        job.offer()
        job.until(lambda: not job.processes(), "those that are left store what they hold, and leave", GRACE_SECONDS)
        last = job.events("step")[-1]

        job.offer(*(f"new-{name}" for name in names))
        job.until(lambda: [e for e in job.events("step") if e["time"] > last["time"]], "training goes on")
        first = next(e for e in job.events("step") if e["time"] > last["time"])
        assert first["step"] in (last["step"], last["step"] + 1), "at most the step that the writer's death undid"
        assert len(job.events("left")) == size - 1
