"""The launcher's pod is told to end: training leaves with its last step durable, and goes on from it."""

import signal
from pathlib import Path

import pytest

from hvd_elastic.discovery.job_beginning import mark_begun
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import SnapshotState
from hvd_elastic.worker import drain
from testbed.local.host_list import put_hosts
from testbed.local.training import HOSTS, Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def offer(job: Training, *aliases: str, generation: int) -> None:
    hosts = tuple(Host(address="127.0.0.1", slots=1, alias=alias, pod=alias) for alias in aliases)
    put_hosts(job.run_dir, hosts, generation, state=SnapshotState.OK if hosts else SnapshotState.SHORT)


DURABLE = {"HVD_ELASTIC_CHECKPOINT_SECONDS": "3600"}
"""No checkpoint is due by itself."""


@pytest.mark.core
def test_a_launcher_that_is_drained_repeats_no_step(tmp_path: Path) -> None:
    """What the sidecar does at the launcher's end, and what the training makes of it."""
    with training(tmp_path, EPOCHS="400", HVD_ELASTIC_CHECKPOINT=f"file://{tmp_path}/store", **DURABLE) as job:
        for alias in ("a-0", "b-0"):
            (tmp_path / "at" / alias).mkdir(parents=True)
        offer(job, "a-0", "b-0", generation=1)
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2")
        job.trains(2)
        for alias in ("a-0", "b-0"):
            drain.announce(tmp_path / "at" / alias, "the launcher is about to end")
        offer(job, generation=2)
        job.until(lambda: not job.processes(), "training has left")
        before = {event["step"] for event in job.events("step")}
        assert job.process is not None
        job.process.terminate()
        assert job.ends() == 128 + signal.SIGTERM

        mark_begun(job.run_dir)
        offer(job, "a-1", generation=3)
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2")
        job.trains(1)
        assert min(event["step"] for event in job.events("step", size=1)) == max(before) + 1


def test_so_does_the_stock_launcher(tmp_path: Path) -> None:
    with training(tmp_path, EPOCHS="400", HVD_ELASTIC_CHECKPOINT=f"file://{tmp_path}/store", **DURABLE) as job:
        job.hosts(*HOSTS[:2])
        job.horovodrun("-np", "2", "--min-np", "1", "--max-np", "2")
        job.trains(2)
        drain.announce(job.run_dir, "the launcher is about to end")
        job.hosts()
        job.until(lambda: not job.processes(), "training has left")
        before = {event["step"] for event in job.events("step")}
        job.close()

        drain.clean(job.run_dir)
        job.hosts(HOSTS[2])
        job.horovodrun("-np", "1", "--min-np", "1", "--max-np", "2")
        job.trains(1)
        assert min(event["step"] for event in job.events("step", size=1)) == max(before) + 1
