"""`run` and `demo` whose output nobody reads, or that cannot be written: they go on."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.local.test_run import SCRIPT

pytestmark = pytest.mark.process

ENDS = SCRIPT + "\nopen(f'{sys.argv[0]}.{hvd.rank()}.done', 'w').close()\n"


def start(*arguments: str, redirection: str = "2>&1", folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    words = ["bash", "-c", f'exec "$@" {redirection}', "bash", sys.executable, "-m", "hvd_elastic.cli", *arguments]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=env)


def read_and_go(job: subprocess.Popen[bytes], lines: int) -> int:
    """Be `| head -LINES`, and wait for the job's exit code."""
    assert job.stdout is not None
    for _ in range(lines):
        assert job.stdout.readline()
    job.stdout.close()
    return job.wait(280)


@pytest.mark.parametrize(
    ("launcher", "redirection", "lines"),
    [
        *product(("launch", "horovodrun"), ("2>&1",), (1, 5)),
        *product(("launch", "horovodrun"), (">/dev/full 2>&1", ">&- 2>&-"), (0,)),
    ],
)
def test_a_run_trains_to_its_end(launcher: str, redirection: str, lines: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDS)
    command = ("--workers", "2", "--launcher", launcher, "--", "python", "train.py", "30", "-1", "-")
    job = start("run", *command, redirection=redirection, folder=tmp_path)
    assert read_and_go(job, lines) == 0
    assert {path.name for path in tmp_path.glob("*.done")} == {"train.py.0.done", "train.py.1.done"}


@pytest.mark.parametrize(("redirection", "lines"), [("2>&1", 3), (">/dev/full", 0)])
def test_a_demo_whose_output_is_lost_leaves_its_report(redirection: str, lines: int, tmp_path: Path) -> None:
    job = start(*DEMO, redirection=redirection, folder=tmp_path)
    assert read_and_go(job, lines) == 0
    assert json.loads((tmp_path / "out/demo/report.json").read_text())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_demo_is_told_in_the_characters_that_there_are(encoding: str, tmp_path: Path) -> None:
    resized = (*DEMO, "--epochs", "8")  # `2 → 1` in the report
    job = start(*resized, folder=tmp_path, PYTHONIOENCODING=encoding)
    output = job.communicate(timeout=280)[0].decode(encoding)
    assert job.returncode == 0, output
    assert "2 ? 1" in output
    assert "written: out/demo/report.json" in output


DEMO = ("demo", "--hosts", "2", "--epochs", "1", "--no-stock")
