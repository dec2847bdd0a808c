"""The scripts that a researcher would copy: how much they differ, and that they run."""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hvd_elastic.mpijob.contract import Engine
from testbed.local import forkserver
from testbed.local.training import ENGINES, training
from tests.torch_division import needs_division

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPLETE = EXAMPLES / "digits_complete.py"
TRAINER = EXAMPLES / "digits_trainer.py"


def code(name: str) -> list[str]:
    """The script without its docstring and blank lines."""
    text = re.sub(r'\A""".*?"""', "", (EXAMPLES / name).read_text(), flags=re.DOTALL)
    return [line for line in text.splitlines() if line.strip()]


def changed_lines(before: str, after: str) -> int:
    """Lines of `after` that are new or changed, and lines of `before` that were removed without a replacement."""
    matcher = difflib.SequenceMatcher(None, code(before), code(after), autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def start(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return start([sys.executable, "-m", "hvd_elastic.cli", "run", *arguments])


def last_accuracy(output: str) -> float:
    return float(re.findall(r"accuracy (\d\.\d+)", output)[-1])


def test_a_script_becomes_elastic_with_ten_changed_lines() -> None:
    assert changed_lines("digits.py", "digits_elastic.py") <= 10


def test_the_count_sees_changes() -> None:
    assert changed_lines("digits.py", "digits.py") == 0
    assert changed_lines("digits.py", "digits_learning_rate.py") > changed_lines("digits.py", "digits_elastic.py")


@pytest.mark.process
@pytest.mark.core
@pytest.mark.parametrize("name", ["digits.py", "digits_elastic.py"])
def test_it_learns_alone_with_plain_python(name: str) -> None:
    done = start([*forkserver.python(), str(EXAMPLES / name), "--epochs", "4"])

    assert done.returncode == 0, done.stderr
    assert last_accuracy(done.stdout) > 0.8


@pytest.mark.process
def test_the_elastic_script_learns_on_several_workers() -> None:
    done = run("--workers", "2", "--", "python", str(EXAMPLES / "digits_elastic.py"), "--epochs", "6")

    assert done.returncode == 0, done.stderr
    assert last_accuracy(done.stdout) > 0.8


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(600)
def test_the_script_with_everything_goes_on_over_a_resize(tmp_path: Path) -> None:
    """Its step number, its scheduler and its best weights go on, and the end is the one of its number of steps."""
    with training(tmp_path) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", script=COMPLETE, arguments=["--epochs", "12", "--patience", "1000"])
        job.trains(2)
        job.offer("a")
        job.trains(1)
        assert job.ends() == 0, job.said()
        steps = 12 * -(-1438 // 64)
        assert f"all epochs are done: {steps} of {steps} steps" in job.said()
        assert float(re.findall(r"best accuracy (\d\.\d+)", job.said())[-1]) > 0.8
        rates = {event["step"]: event["rate"] for event in job.events("step")}
        assert len(rates) == steps
        assert max(rates.values()) == pytest.approx(0.1, abs=0.01), "the scheduler has warmed up once"
        assert rates[max(rates)] == pytest.approx(0.0, abs=1e-3)


@needs_division
@pytest.mark.process
@pytest.mark.timeout(600)
def test_the_divided_model_goes_on_over_resizes(tmp_path: Path) -> None:
    with training(tmp_path, engine=Engine.TORCH) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", script=EXAMPLES / "digits_fsdp.py", arguments=["--epochs", "20"])
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        job.offer("b", "c")
        job.trains(2)
        assert job.ends() == 0, job.said()
        assert last_accuracy((job.folder / "out").read_text()) > 0.9


@pytest.mark.process
def test_the_script_with_everything_stops_early_on_all_workers() -> None:
    flags = ["--epochs", "40", "--evaluate-every", "5", "--patience", "1", "--loaders", "1"]
    done = run("--workers", "2", "--", "python", str(COMPLETE), *flags)

    assert done.returncode == 0, done.stderr
    assert "stopped early: " in done.stdout


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_trainer_with_everything_goes_on_over_a_resize(tmp_path: Path, engine: str) -> None:
    """It tells each best model once, and the file of the last one holds its accuracy."""
    with training(tmp_path, engine=engine) as job:
        keep = ["--keep", f"file://{tmp_path}/keep", "--epochs", "12", "--patience", "1000"]
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", script=TRAINER, arguments=keep)
        job.trains(2)
        job.offer("b")
        job.trains(1)
        assert job.ends() == 0, job.said()
        said = (job.folder / "out").read_text()
    steps = 12 * -(-1438 // 64)
    (best,) = re.findall(rf"12 epochs done: {steps} of {steps} steps, best accuracy (\d\.\d+)", said)
    assert float(best) > 0.8
    kept = re.findall(r"step (\d+): accuracy (\d\.\d+) in file", said)
    assert len({step for step, _ in kept}) == len(kept), "each is told once"
    assert kept[-1][1] == best
    stored = torch.load(tmp_path / "keep" / "best" / f"step-{kept[-1][0]}.pt")
    assert f"{stored['metrics']['accuracy']:.3f}" == best
    assert re.search(r"step \d+: 2 workers(.|\n)*step \d+: 1 workers", said)


@pytest.mark.process
def test_the_trainer_stops_early_on_all_workers(tmp_path: Path) -> None:
    flags = ["--epochs", "40", "--evaluate-every", "5", "--patience", "1", "--keep", f"file://{tmp_path}"]
    done = run("--workers", "2", "--", "python", str(TRAINER), *flags)

    assert done.returncode == 0, done.stderr
    assert "stopped early: accuracy has not improved in 1 evaluation," in done.stdout


@pytest.mark.process
def test_the_learning_rate_follows_the_world_size() -> None:
    script = str(EXAMPLES / "digits_learning_rate.py")
    done = run("--workers", "2", "--", "python", script, "--epochs", "4")

    assert done.returncode == 0, done.stderr
    assert "learning rate x2.00" in done.stdout
