"""`hvd-elastic run` with scripts that leave training on one rank alone, on all, or because they were told to."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit
from testbed.kube import waiting
from testbed.local import script_run

pytestmark = pytest.mark.process

SCRIPT = """\
import os, signal, sys
from pathlib import Path
import torch
import horovod.torch as hvd
import hvd_elastic as elastic

elastic.init()
how, folder = sys.argv[1], Path(sys.argv[2])
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
stopped = []

def on_sigterm(*_):
    hvd.rank()
    if how.startswith("sigterm-exit"):
        sys.exit(143 if how == "sigterm-exit" else 0)
    stopped.append(True)

if how.startswith("sigterm"):
    signal.signal(signal.SIGTERM, on_sigterm)

@elastic.run
def train(state):
    while state.step < 60:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        if state.step == 20 and hvd.rank() == hvd.size() - 1:
            (folder / "at-20").write_text(str(os.getpid()))
        if state.step == 20 and (how.startswith("all") or hvd.rank() == hvd.size() - 1):
            if how.endswith("sys.exit"):
                sys.exit(0)
            if how == "os._exit":
                os._exit(0)
            if how in ("return", "all-return"):
                return
            if how == "error":
                raise ValueError("a broken sample")
            if how == "mismatch":
                hvd.allreduce(torch.zeros(2), name="loss")
        elif how == "mismatch" and state.step == 20:
            hvd.allreduce(torch.zeros(1), name="loss")
        if how.startswith("sigterm"):
            import time; time.sleep(0.05)
        if how == "rank-0-commits" and (hvd.rank() or state.step % 10):
            continue
        if how == "unlike-clocks" and state.step % (10 + hvd.rank()):
            continue
        state.commit()
        if stopped:
            return

train(elastic.State(model=model, optimizer=optimizer, step=0))
(folder / f"after-{os.getpid()}").touch()
"""


def start(folder: Path, how: str, launcher: str = "launch") -> subprocess.Popen[str]:
    options = ("--workers", "2", "--launcher", launcher)
    return script_run.start(folder, SCRIPT, how, options=options, HVD_ELASTIC_STALL_SECONDS="2")


def written(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


@pytest.mark.parametrize(
    ("how", "launcher"),
    [
        pytest.param(how, launcher, marks=[pytest.mark.core] if (how, launcher) == ("return", "launch") else [])
        for how in ("return", "sys.exit", "os._exit")
        for launcher in ("launch", "horovodrun")
    ],
)
def test_a_rank_that_leaves_alone_is_no_success(how: str, launcher: str, tmp_path: Path) -> None:
    job = start(tmp_path, how, launcher)

    code, output = script_run.ended(job)

    assert code == Exit.SCRIPT_MISTAKE, output
    assert "rank 1 has " in output, output
    assert "elastic.agree" in output
    assert "after step 19" in output or "after step 20" in output, "which step it had reached"


def test_an_error_of_one_rank_ends_the_job_with_its_words(tmp_path: Path) -> None:
    job = start(tmp_path, "error")

    code, output = script_run.ended(job)

    assert code == 1, output
    assert "ValueError: a broken sample" in output


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_operations_that_never_fit_end_the_job(launcher: str, tmp_path: Path) -> None:
    job = start(tmp_path, "mismatch", launcher)

    code, output = script_run.ended(job)

    assert code == Exit.SCRIPT_MISTAKE, output
    assert "Mismatched ALLREDUCE tensor shapes" in output
    assert "in 3 worlds" in output


@pytest.mark.parametrize(
    ("how", "launcher"),
    [
        pytest.param("rank-0-commits", "launch", marks=pytest.mark.core),
        ("rank-0-commits", "horovodrun"),
        ("unlike-clocks", "launch"),
    ],
)
def test_ranks_in_unlike_operations_end_the_job(how: str, launcher: str, tmp_path: Path) -> None:
    lines = {line.strip(): number for number, line in enumerate(SCRIPT.splitlines(), 1)}
    job = start(tmp_path, how, launcher)

    code, output = script_run.ended(job)

    assert code == Exit.SCRIPT_MISTAKE, output
    commits = f"rank 0 waits in allreduce hvd_elastic.agreement at train.py:{lines['state.commit()']} in train"
    assert f"{commits}, and rank 1 in allreduce " in output
    assert f" at train.py:{lines['optimizer.step()']} in train: neither can ever be done" in output


@pytest.mark.parametrize("how", ["all-return", "all-sys.exit"])
def test_all_ranks_may_leave_at_the_same_step(how: str, tmp_path: Path) -> None:
    job = start(tmp_path, how)

    code, output = script_run.ended(job)

    assert code == Exit.OK, output
    assert len(list(tmp_path.glob("after-*"))) == (2 if how == "all-return" else 0)


@pytest.mark.parametrize("how", ["sigterm-exit", "sigterm-exit-0", "sigterm-return"])
def test_after_sigterm_a_rank_leaves_and_the_others_train_on(how: str, tmp_path: Path) -> None:
    job = start(tmp_path, how)
    waiting.until("rank 1 is at step 20", lambda: written(tmp_path / "at-20"), within_seconds=200)

    os.kill(int((tmp_path / "at-20").read_text()), signal.SIGTERM)
    code, output = script_run.ended(job)

    assert code == Exit.OK, output
    assert "left: exit code 77" in output
    assert len(list(tmp_path.glob("after-*"))) >= 1
