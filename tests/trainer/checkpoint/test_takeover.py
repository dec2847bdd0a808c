"""Another process becomes rank 0 and the writer: real Horovod, because only there do others hold the state."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS
from tests.trainer.checkpoint.proxy import Fault, Faults
from tests.trainer.elastic.test_faults import INTERVAL, SCRIPT, Faulty, check_steps, faulty

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def is_durable(job: Faulty, host: str) -> bool:
    return any(not event["error"] for event in job.events("checkpoint", host=host))


def test_a_store_that_is_away_when_rank_0_dies_costs_no_step(
    tmp_path: Path, s3_proxy: tuple[str, Faults], s3_client: Any, faults: Faults
) -> None:
    """The survivor trains on with the state that it holds, and stores it when the store is back."""
    bucket = f"b{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=bucket)
    durable = {
        ENV_CHECKPOINT: f"s3://{bucket}/jobs/a?endpoint={s3_proxy[0]}&region=us-east-1",
        ENV_CHECKPOINT_STEPS: str(INTERVAL),
    }
    with faulty(tmp_path, **durable) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2", script=SCRIPT)
        job.trains(2)
        job.until(lambda: is_durable(job, "a"), "a durable checkpoint")
        for method in ("GET", "PUT", "POST", "HEAD"):
            faults.add(Fault.CUT_REQUEST, method, ".", times=10**9)
        job.dies(job.order("a", "committed"))
        job.trains(1, steps=5 * INTERVAL)
        assert not is_durable(job, "b")
        faults.clear()
        job.until(lambda: is_durable(job, "b"), "a durable checkpoint of the survivor")
        check_steps(job.events("step"))


@pytest.mark.core
def test_the_loss_of_rank_0_while_it_stores_the_final_state_costs_nothing(tmp_path: Path) -> None:
    """Nobody has left: another one stores it."""
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/durable", ENV_CHECKPOINT_STEPS: "100000", "TEST_EPOCHS": "1"}
    with faulty(tmp_path, **durable) as job:
        killed = job.order("a", "uploaded")
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2", script=SCRIPT)
        assert job.ends() == 0
        assert not killed.exists()
        last = max(event["step"] for event in job.events("step"))
        manifests = tmp_path / "durable" / "manifests"  # of the end of the last epoch, which is a commit of its own
        assert [path.name.split("-", 2)[2] for path in manifests.iterdir()] == [f"step-{last + 1}.json"]
        check_steps(job.events("step"))
