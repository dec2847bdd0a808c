"""What befalls the checkpoints of a job: their folder cannot be written, their bytes are cut off."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster.jobs import Job
from testbed.cluster.pod_cgroups import pod_cgroups
from testbed.cluster.site import Site
from testbed.cluster.standing import FAULT_LAUNCHERS, LAUNCHERS, SIZE, Scenario, nothing_lost
from testbed.kube import waiting
from tests.cluster.faults.reports import DURABLE_SECONDS, little_lost, until_status
from tests.cluster.test_operating import call, told

pytestmark = [pytest.mark.timeout(420, func_only=True)]


@pytest.mark.parametrize("standing", FAULT_LAUNCHERS, indirect=True)
def test_why_nothing_gets_durable_is_told_at_once_and_when_it_is_over(scenario: Scenario) -> None:
    """A file stands in the place of the folder."""
    kubectl, job = scenario.kubectl, scenario.job
    durable, aside = job.shared / "checkpoints", job.shared / "aside"
    _wait_durable(job)
    durable.rename(aside)
    durable.write_text("no folder")
    try:
        until_status(job, "status says why", lambda status: bool(status["save_error"]), within_seconds=60)
        line = next(line for line in call(kubectl, "status", job.name).splitlines() if "durable checkpoint" in line)
        assert re.search(r"step \d+, .* ago; saves fail: .*/checkpoints.*HvdElasticCheckpointLate", line), line
        assert any("CheckpointFailed" in one["what"] for one in told(kubectl, "events", job.name))
    finally:
        durable.unlink()
        aside.rename(durable)

    def is_over() -> bool:
        events = [one["what"] for one in told(kubectl, "events", job.name)]
        return not told(kubectl, "status", job.name)["save_error"] and any("CheckpointDurable" in one for one in events)

    waiting.until("status says nothing of it any more", is_over, within_seconds=90, every_seconds=2)
    nothing_lost(scenario.account)


@pytest.mark.faults
@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_the_folder_is_read_only(scenario: Scenario) -> None:
    job = scenario.job
    _wait_durable(job)
    scenario.timeline.mark("the folder is read-only")
    with _read_only(job.shared / "checkpoints"):
        until_status(job, "status says why", lambda status: "denied" in status["save_error"], within_seconds=60)
        job.wait_steps(20)
    scenario.timeline.mark("it can be written again")
    until_status(job, "saves succeed", lambda status: not status["save_error"])
    nothing_lost(scenario.account)


@pytest.mark.faults
@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_the_newest_checkpoint_is_cut_off(cluster: Site, scenario: Scenario) -> None:
    """Every process is killed at once, and what the newest checkpoint holds ends in the middle: the one before does."""
    cluster.local()
    job = scenario.job
    _wait_durable(job)
    first = told(job.kubectl, "status", job.name)["durable_step"]
    until_status(job, "another checkpoint", lambda status: status["durable_step"] > first)
    everyone = [pod["metadata"]["uid"] for role in (Role.WORKER, Role.LAUNCHER) for pod in job.pods(role)]
    scenario.timeline.mark("every pod is deleted without grace")
    scenario.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force")
    waiting.until("no process is left", lambda: not any(map(pod_cgroups, everyone)), within_seconds=60)
    cut, step = _cut_newest(job.shared / "checkpoints")
    lost = scenario.timeline.mark(f"{cut.name} of step {step} is cut off")
    job.wait_size(SIZE, since=lost, within_seconds=240)
    again = job.account.since(lost).steps[0]["step"]
    assert 1 < again <= step, f"the checkpoint of step {step} is cut off, and training began at {again}"
    assert "is not used: " in job.log()
    until_status(job, "status says that it was not used", lambda status: cut.stem in status["rejected"])
    job.wait_steps(20)
    little_lost(scenario.account, seconds=2 * DURABLE_SECONDS)


def _wait_durable(job: Job) -> None:
    until_status(job, "a checkpoint is durable", lambda status: status["durable_step"] >= 0)


def _cut_newest(checkpoints: Path) -> tuple[Path, int]:
    """Leave half of what the newest manifest stands for; its file, and its step."""
    manifest = max(checkpoints.rglob("manifests/*.json"), key=lambda path: path.name)
    name, _, step = manifest.stem.partition("-step-")
    files = [file for file in checkpoints.rglob(f"data/{name}*") if file.is_file()]
    files += [file for folder in checkpoints.rglob(f"data/{name}*/") for file in folder.rglob("*") if file.is_file()]
    assert files, f"{manifest} has no data"
    for file in files:
        with file.open("r+b") as data:
            data.truncate(file.stat().st_size // 2)
    return files[0], int(step)


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Root's, and nobody else may write: jobs run as another user."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    before = [(path, path.stat()) for path in folders]
    for path in folders:
        shutil.chown(path, 0, 0)
        path.chmod(0o555)
    try:
        yield
    finally:
        for path, was in before:
            path.chmod(was.st_mode & 0o7777)
            shutil.chown(path, was.st_uid, was.st_gid)
