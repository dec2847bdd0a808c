"""Any trainer's step log: what is wrong with it, and what it says of hosts that go and come."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conforming.commanded_system import commanded_system
from benchmarks.conforming.host_changes import HostChange, changed
from benchmarks.conforming.step_log import StepLogError, read_step_log
from benchmarks.peers.local_system import EVENTS
from benchmarks.peers.local_window import wait_trained
from hvd_elastic.mpijob.contract import Exit

ROOT = Path(__file__).parents[2]
SAMPLES = 6

TRAINER = """
# Host 0 trains alone, and says that whoever has told a port of its own last is in its world: a world without a network.
import json, os, sys, time
from pathlib import Path
folder, place = Path(os.environ["CONFORMANCE_FOLDER"]), int(os.environ["CONFORMANCE_HOST"])
assert os.environ["CONFORMANCE_HOSTS"] == "3" and int(os.environ["CONFORMANCE_PORT"])
(folder / str(place)).write_text(str(os.getpid()))
log = (Path(os.environ["CONFORMANCE_EVENTS"]) / f"{place}.jsonl").open("a", buffering=1)
step, epoch, left = 0, 0, []
def lives(pid):
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
def tell(event, **more):
    log.write(json.dumps({"event": event, "time": time.time(), "rank": 0, "size": size, "step": step} | more) + "\\n")
while True:
    time.sleep(0.01)
    if place:
        continue
    size = sum(lives(file.read_text()) for file in folder.iterdir() if file.read_text())
    epoch, left = (epoch, left) if left else (epoch + 1, list(range(6)))
    used, left, step = left[:2], left[2:], step + 1
    tell("samples", epoch=epoch, samples=used + [5] * (FAULTY and 5 not in used))
    tell("step")
"""


def line(event: str, **more: Any) -> dict[str, Any]:
    return {"event": event, "time": 1.0, "rank": 0, "size": 2, "step": 1} | more


def written(folder: Path, lines: Iterable[Mapping[str, Any] | str]) -> Path:
    texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
    (folder / "a").mkdir()
    (folder / "a" / "rank.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return folder


def test_all_wrong_lines_are_named(tmp_path: Path) -> None:
    wrong: list[Mapping[str, Any] | str] = [
        "{",
        line("step", size=0),
        line("samples", epoch=0),
        line("samples", epoch=0, samples=[0, SAMPLES]),
        line("step", rank=2),
        {"event": "step"},
        line("resize", size="two"),
    ]
    with pytest.raises(StepLogError) as raised:
        read_step_log(written(tmp_path, [line("step"), *wrong]), samples=SAMPLES)
    problems = str(raised.value).splitlines()
    assert [problem.partition(".jsonl:")[2].split(":")[0] for problem in problems] == list("234567777")
    assert "'samples' is a required property" in problems[2]
    assert "6 is none of a data set of 6" in problems[3]


def test_other_events_and_a_line_that_is_being_written_are_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path, [{"event": "saved", "time": 1, "samples": 9}, line("step", samples=9)])
    with (folder / "a" / "rank.jsonl").open("a") as file:
        file.write('{"event": "st')
    assert len(read_step_log(folder, samples=SAMPLES).steps) == 1


def test_a_folder_without_a_step_is_none(tmp_path: Path) -> None:
    with pytest.raises(StepLogError, match="is it the folder of the log"):
        read_step_log(tmp_path, samples=SAMPLES)


@pytest.mark.process
@pytest.mark.parametrize(("faulty", "code"), [(False, 0), (True, 1)])
def test_a_trainer_of_which_only_the_log_is_known(tmp_path: Path, faulty: bool, code: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"FAULTY = {faulty}\n{TRAINER}")
    run = tmp_path / "run"
    (run / EVENTS).mkdir(parents=True)
    with commanded_system("mine", [sys.executable, str(script)]).start(run, 3) as places:
        wait_trained(places, run, 3)
        found = changed(places, run, [*HostChange], hosts=3, samples=SAMPLES, patience=60)
    assert [change for change, _ in found] == [*HostChange]
    assert all(not cost.ended and cost.stall < cost.whole + 60 and cost.repeated == 0 for _, cost in found)
    assert all(bool(cost.wrong_samples) == faulty for _, cost in found)
    check = [sys.executable, "-m", "benchmarks.conformance", "--check", str(run / EVENTS), f"--samples={SAMPLES}"]
    assert subprocess.run(check, cwd=ROOT, check=False).returncode == code


@pytest.mark.process
def test_a_wrong_log_is_bad_input(tmp_path: Path) -> None:
    check = [sys.executable, "-m", "benchmarks.conformance", "--check", str(written(tmp_path, ["{"])), "--samples=6"]
    done = subprocess.run(check, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == Exit.BAD_INPUT
    assert "rank.jsonl:1: no JSON" in done.stderr
