"""`hvd-elastic run` with real processes: how it ends, and what it does when hosts change."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from hvd_elastic.local import local_run
from tests.failing_threads import wait_for

pytestmark = pytest.mark.process

SCRIPT = """\
import os, sys, time
import torch
import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

@hvd.elastic.run
def train(state):
    while state.step < int(sys.argv[1]):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        print(f"step {state.step} size {hvd.size()}", flush=True)
        if state.step == int(sys.argv[2]):
            raise SystemExit("my own mistake") if sys.argv[3] == "exit" else ValueError("my own mistake")
        time.sleep(0.02)
        state.commit()

train(state)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def mark() -> Iterator[str]:
    """A value in the environment of every process of a run; no such process may be left after the test."""
    mark = uuid.uuid4().hex
    yield mark
    assert processes(mark) == []


def processes(mark: str) -> list[str]:
    return [" ".join(info["cmdline"]) for info in marked(mark)]


def marked(mark: str) -> list[dict[str, Any]]:
    """What psutil knows of each process of a run."""
    all_of_them = [process.info for process in psutil.process_iter(["environ", "cmdline", "status"])]
    return [
        info
        for info in all_of_them
        if (info["environ"] or {}).get("HVD_ELASTIC_TEST_MARK") == mark and info["status"] != psutil.STATUS_ZOMBIE
    ]


def start(mark: str, *arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hvd_elastic.cli", "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=os.environ | {"HVD_ELASTIC_TEST_MARK": mark, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_a_failing_script_ends_with_its_code_and_its_last_lines(launcher: str, script: str, mark: str) -> None:
    command = ["python", script, "100", "3", "raise"]
    job = start(mark, "--workers", "2", "--launcher", launcher, "--", *command)

    output = job.communicate(timeout=280)[0]

    assert job.returncode == 1, output
    assert "ValueError: my own mistake" in output
    assert output.rstrip().endswith("\nValueError: my own mistake"), "the launcher's last word is the script's"
    assert "RuntimeError: Horovod detected" not in output
    assert "gloo_run" not in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_process(number: signal.Signals, script: str, mark: str) -> None:
    job = start(mark, "--workers", "2", "--", "python", script, "100000", "-1", "-")
    assert job.stdout is not None
    next(line for line in job.stdout if "step 5" in line)

    job.send_signal(number)
    output = job.communicate(timeout=60)[0]

    assert job.returncode == 128 + number
    assert processes(mark) == []
    assert f"the job failed with {128 + number}: ended by {number.name}" in output
    assert "KeyboardInterrupt" not in output


def test_ctrl_z_stops_every_process_and_fg_continues_them(script: str, mark: str) -> None:
    job = start(mark, "--workers", "2", "--", "python", script, "100000", "-1", "-")
    assert job.stdout is not None
    next(line for line in job.stdout if "step 5" in line)

    job.send_signal(signal.SIGTSTP)
    wait_for(lambda: statuses(mark) == {psutil.STATUS_STOPPED}, seconds=30)
    job.send_signal(signal.SIGCONT)
    wait_for(lambda: psutil.STATUS_STOPPED not in statuses(mark), seconds=30)

    reached = max(int(found[1]) for line in take(job, 20) if (found := re.search(r"step (\d+) size 2", line)))
    next(line for line in job.stdout if f"step {reached + 50} size 2" in line)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGTERM


def take(job: subprocess.Popen[str], lines: int) -> list[str]:
    assert job.stdout is not None
    return list(itertools.islice(job.stdout, lines))


def statuses(mark: str) -> set[str]:
    """Of all processes of a run."""
    return {info["status"] for info in marked(mark)}


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_under_nohup_it_trains_on_when_the_terminal_closes(launcher: str, script: str, mark: str) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does before it becomes the command
    try:
        job = start(mark, "--workers", "2", "--launcher", launcher, "--", "python", script, "100000", "-1", "-")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert job.stdout is not None
    next(line for line in job.stdout if "step 5 " in line)

    job.send_signal(signal.SIGHUP)
    reached = next((line for line in job.stdout if "step 30 " in line), None)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)

    assert reached
    assert job.returncode == 128 + signal.SIGTERM


@pytest.fixture
def module(tmp_path: Path) -> str:
    """The script as a module of a package that imports from it, and goes into a folder of its own, as hydra does."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "folders.py").write_text("def folder(name): return f'outputs/{name}'\n")
    changes = "from .folders import folder\nos.makedirs(folder(os.getpid()))\nos.chdir(folder(os.getpid()))\n"
    (package / "train.py").write_text(SCRIPT.replace("hvd.init()\n", f"hvd.init()\n{changes}"))
    return "package.train"


@pytest.mark.parametrize("program", [pytest.param("script", marks=pytest.mark.core), "module"])
def test_hosts_go_and_come_back_while_it_runs(
    program: str, script: str, module: str, tmp_path: Path, mark: str
) -> None:
    command = ["python", "-m", module] if program == "module" else ["python", script]
    resized = ["--workers", "1:2:2", "--resize", "6:1,12:2"]
    job = start(mark, *resized, "--", *command, "100000", "-1", "-", folder=tmp_path)
    assert job.stdout is not None
    sizes: list[str] = []
    for line in job.stdout:
        found = re.search(r"step \d+ size (\d)", line)
        if found and (not sizes or sizes[-1] != found[1]):
            sizes.append(found[1])
        if sizes == ["2", "1", "2"]:
            break

    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert sizes == ["2", "1", "2"]


SLOTS_SCRIPT = """\
import os, time
import horovod.torch as hvd
import torch

import hvd_elastic as elastic

elastic.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())

@elastic.run
def train(state):
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        time.sleep(0.05)
        place = f"{hvd.rank()} {hvd.local_rank()} {hvd.local_size()} {hvd.cross_rank()}"
        # One write, for all ranks share the output.
        os.write(1, f"step {state.step} size {hvd.size()} place {place}\\n".encode())
        state.commit()

train(elastic.State(model=model, optimizer=optimizer, step=0))
"""


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_a_killed_process_of_a_host_of_two_takes_the_other_along(launcher: str, tmp_path: Path, mark: str) -> None:
    """Four ranks on two hosts: the world goes on with the other host, and both processes come back together."""
    (tmp_path / "train.py").write_text(SLOTS_SCRIPT)
    sizes = ("--workers", "1:2:2", "--workers-slots", "2")
    job = start(mark, *sizes, "--launcher", launcher, "--", "python", str(tmp_path / "train.py"))
    assert job.stdout is not None
    steps: list[int] = []
    done: set[int] = set()
    places: dict[int, set[str]] = {2: set(), 4: set()}
    worlds: list[int] = []
    for found in (re.search(r"step (\d+) size (\d) place (.*)", line) for line in job.stdout):
        if found is None:
            continue
        step, size, place = int(found[1]), int(found[2]), found[3].strip()
        places[size].add(place)
        done.add(step)  # whoever tells of it: the last words of a rank 0 that ends may be lost
        if place.startswith("0 "):
            steps.append(step)
            worlds += [size] if worlds[-1:] != [size] else []
            if len(steps) == 20:
                kill_newest(mark, "--slot=1")
        if worlds == [4, 2, 4] and step > steps[0] + 40:
            break
    job.send_signal(signal.SIGTERM)
    output = job.communicate(timeout=60)[0]
    assert worlds == [4, 2, 4], output
    assert places == {4: {"0 0 2 0", "1 1 2 0", "2 0 2 1", "3 1 2 1"}, 2: {"0 0 2 0", "1 1 2 0"}}
    assert sorted(done) == list(range(1, max(done) + 1))
    assert len(steps) - len(set(steps)) <= 1, "more was lost than the step that was under way"


def kill_newest(mark: str, argument: str) -> None:
    """SIGKILL the youngest process of the run that has this argument."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HVD_ELASTIC_TEST_MARK") == mark and argument in process.cmdline():
                found.append(process)
    max(found, key=lambda process: process.create_time()).kill()


@pytest.mark.parametrize("launcher", [pytest.param("launch", marks=pytest.mark.core), "horovodrun"])
def test_the_command_starts_in_workdir(launcher: str, tmp_path: Path, mark: str) -> None:
    """Folders of this machine that the caller names by relative paths are those of his own folder."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "images").mkdir(parents=True)
    there.mkdir()
    words = "import os, horovod.torch as hvd\nhvd.init()\n"
    (there / "train.py").write_text(f"{words}print('in', os.getcwd(), os.environ['HVD_ELASTIC_DATA'])\n")
    data = ("--data-claim", "images", "--data-local", "images")
    flags = ("--workers", "1", "--launcher", launcher, "--workdir", str(there), *data)

    job = start(mark, *flags, "--", "python", "train.py", folder=here)
    output = job.communicate(timeout=280)[0]

    assert job.returncode == 0, output
    assert f"in {there} {here}/images\n" in output


@pytest.mark.core
def test_bad_input_is_reported_before_any_process_starts(mark: str) -> None:
    job = start(mark, "--workers", "3:2:1", "--name", "Not A Name", "--image", "a b", "--", "python", "no-such.py")

    output = job.communicate(timeout=60)[0]

    assert job.returncode == 2
    assert {line.removeprefix("error: ").split(":")[0] for line in output.splitlines()} >= {
        "--workers",
        "--name",
        "--image",
        "command[1]",
    }


@dataclass
class Cluster:
    wanted: int
    offered: tuple[str, ...]


def test_a_resize_is_told_until_all_its_hosts_are_ready() -> None:
    job: Any = SimpleNamespace(cluster=Cluster(wanted=3, offered=("a",)))
    said: list[str] = []
    shown = local_run._say_ready(job, "resize", said.append)
    shown = local_run._say_ready(job, shown, said.append)
    job.cluster.offered = ("a", "b", "c")
    assert local_run._say_ready(job, shown, said.append) == ""
    job.cluster = Cluster(wanted=1, offered=("a", "b", "c"))
    assert local_run._say_ready(job, "resize", said.append)
    assert said == [
        "resize: 3 hosts wanted, 1 of 3 ready",
        "resize: 3 hosts wanted, 3 of 3 ready",
        "resize: 1 host wanted, 1 of 1 ready",
    ]


def test_a_machine_that_is_late_makes_each_resize_as_far_apart_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that got no processor for 20 s made both at once, so that no host went."""
    now, made = 0.0, list[tuple[float, int]]()

    def wait(seconds: float) -> int | None:
        nonlocal now
        now += 26.0 if now == 0.0 else min(seconds, 100.0)
        return 0 if now > 100.0 else None

    def want(hosts: int) -> None:
        made.append((now, hosts))
        job.cluster.wanted, job.cluster.offered = hosts, ("",) * hosts

    job: Any = SimpleNamespace(wait=wait, cluster=SimpleNamespace(wanted=2, offered=("a", "b"), want=want))
    monkeypatch.setattr(local_run, "time", SimpleNamespace(monotonic=lambda: now))
    assert local_run._wait(job, local_run.parse_resizes("6:1,12:2"), lambda words: None) == 0
    assert made == [(26.0, 1), (32.0, 2)]
