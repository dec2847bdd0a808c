"""`hvd-elastic run` with scripts that cannot work: one sentence with the way out, and exit 79, under both launchers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit

pytestmark = pytest.mark.process

SCRIPT = """\
import os, signal, sys
from pathlib import Path
import torch
from torch.utils.checkpoint import checkpoint
import horovod.torch as hvd
import hvd_elastic as elastic

how, folder = sys.argv[1], Path(sys.argv[2])

def main():
    if how == "input":
        input("overwrite? ")
    elastic.init()
    model = torch.nn.LazyLinear(4) if how == "lazy" else torch.nn.Linear(4, 4)
    if "lbfgs" in how:
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if how != "plain-lbfgs":
        options = {"op": hvd.Adasum} if how == "adasum" else {}
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    writer = [].append if hvd.rank() == 0 else None
    loading = {"num_workers": 1, "multiprocessing_context": "spawn"} if "spawn" in how else {}

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum() * (1 + hvd.rank())
        loss.backward()
        for name, weight in model.named_parameters():
            hvd.allreduce_(weight.grad, name=name)
        return hvd.allreduce(loss.detach(), name="loss")

    @elastic.run
    def train(state):
        for state.epoch in state.remaining_epochs(2):
            data = torch.utils.data.TensorDataset(torch.ones(24, 4))
            for (x,) in state.batches(data, global_batch_size=4, **loading):
                if how == "pdb":
                    breakpoint()
                if how == "skip" and elastic.any_rank(hvd.rank() == 1 and state.step_count == 2):
                    (folder / f"skipped-{hvd.rank()}").touch()
                    state.commit()
                    continue
                if how == "plain-lbfgs":
                    optimizer.step(closure)
                else:
                    optimizer.zero_grad()
                    x.requires_grad_(True)
                    for _ in range(2):
                        x = checkpoint(model, x, use_reentrant=True) if how == "checkpoint" else model(x)
                    x.sum().backward()
                    optimizer.step()
                if how == "writer" and hvd.rank() == 0:
                    writer.__call__(state.step_count)
                    if hvd.size() == 2 and state.step_count == 3:
                        os.kill(os.getpid(), signal.SIGKILL)
                state.commit()
        weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
        assert torch.equal(hvd.broadcast(weights, 0), weights)
    train(elastic.State(model=model, optimizer=optimizer))
    (folder / f"done-{os.getpid()}").touch()

if how != "guarded-spawn" or __name__ == "__main__":
    main()
"""

REFUSED = {
    "lazy": "Run one batch through the model",
    "lbfgs": "Leave LBFGS unwrapped",
    "adasum": "Leave op out",
    "spawn": 'below `if __name__ == "__main__":`',
    "input": "input() at train.py:12 in main: a worker has no terminal",
    "pdb": "the debugger has stopped at train.py:",
    "checkpoint": "use_reentrant=False",
    "writer": "was rank 1 at the beginning, and is rank 0 since a resize",
}


def run(folder: Path, how: str, launcher: str) -> "subprocess.CompletedProcess[str]":
    (folder / "train.py").write_text(SCRIPT)
    command = ["python", str(folder / "train.py"), how, str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "hvd_elastic.cli", "run", "--workers", "1:2:2", "--launcher", launcher, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=280,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


CASES = [
    *((how, "launch") for how in REFUSED),
    *((how, "horovodrun") for how in ("lbfgs", "spawn", "input", "writer")),  # others end as one of these
]


@pytest.mark.parametrize(
    ("how", "launcher"),
    [pytest.param(*case, marks=[pytest.mark.core] if case == ("spawn", "launch") else []) for case in CASES],
)
def test_one_sentence_with_the_way_out(how: str, launcher: str, tmp_path: Path) -> None:
    done = run(tmp_path, how, launcher)

    assert done.returncode == Exit.SCRIPT_MISTAKE, done.stdout
    assert REFUSED[how] in done.stdout, done.stdout
    assert not list(tmp_path.glob("done-*"))


@pytest.mark.parametrize("how", ["plain-lbfgs", "guarded-spawn", "skip"])
def test_the_way_out_works(how: str, tmp_path: Path) -> None:
    done = run(tmp_path, how, "launch")

    assert done.returncode == Exit.OK, done.stdout
    assert len(list(tmp_path.glob("done-*"))) == 2, done.stdout
    skipped = {file.name for file in tmp_path.glob("skipped-*")}
    assert skipped == ({"skipped-0", "skipped-1"} if how == "skip" else set())
