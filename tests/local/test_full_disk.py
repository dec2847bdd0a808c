"""`hvd-elastic run` while the disk of its temporary folder is full: said once, and waited for."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.local.local_job import local_cluster
from hvd_elastic.local.run_folder import TemporaryFolderError
from hvd_elastic.mpijob.job_reader import read_job
from testbed.cluster.small_disk import SmallDisk, small_disk
from tests.local.test_run import SCRIPT

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")]

FULL = "cannot be written, and is tried again: No space left on device"
AGAIN = "is written again"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "tmp") as disk:
        yield disk


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


class Job:
    """A run whose output is read line by line."""

    def __init__(self, disk: SmallDisk, *arguments: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hvd_elastic.cli", "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"TMPDIR": str(disk.folder), "OMP_NUM_THREADS": "1"},
        )

    def reads(self, *words: str) -> None:
        """Read on until each of these was in a line."""
        assert self._process.stdout is not None
        missing = set(words)
        for line in self._process.stdout:
            self.lines.append(line)
            missing -= {word for word in missing if word in line}
            if not missing:
                return
        raise AssertionError(f"{missing} not in {''.join(self.lines)}")

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        self.lines.append(self._process.communicate(timeout=60)[0])
        return self._process.returncode

    def count(self, words: str) -> int:
        return "".join(self.lines).count(words)


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_training_goes_on_while_the_disk_is_full(launcher: str, disk: SmallDisk, script: str) -> None:
    flags = ("--launcher", launcher, "--workers", "1:2:2", "--resize", "0.1:1,2:2")
    job = Job(disk, *flags, "--", "python", script, "100000", "-1", "-")
    job.reads("step 5 ")
    disk.fill()
    job.reads(f"{disk.folder}/hvd-elastic-", FULL)
    step = int(next(line for line in reversed(job.lines) if "step" in line).split("step ")[1].split()[0])
    job.reads(f"step {step + 100} ")
    disk.clear()
    job.reads(AGAIN, f"step {step + 200} ")
    assert job.end() == 128 + signal.SIGTERM
    said = "".join(line for line in job.lines if "step " not in line)
    assert job.count(f"local {FULL}") <= 1, said
    assert job.count("cannot be written") <= 3, said
    assert "Traceback" not in said


def test_a_warm_up_waits_for_room(disk: SmallDisk, script: str) -> None:
    job = Job(disk, "--workers", "2", "--", "python", script, "100000", "-1", "-")
    job.reads("warming up: 0 of 2")
    disk.fill()
    job.reads(FULL)
    disk.clear()
    job.reads(AGAIN, "step 5 ")
    assert job.end() == 128 + signal.SIGTERM
    assert job.count(FULL) <= 2
    assert job.count("Traceback") == 0


def test_a_start_without_room_is_one_sentence(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.fill()
    monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
    job = read_job(None, {"name": "job", "command": ["true"]})
    with (
        pytest.raises(TemporaryFolderError, match=r"No space left on device.*: make room, or set TMPDIR"),
        local_cluster(job),
    ):
        pass
