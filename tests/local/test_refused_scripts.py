"""`hvd-elastic run` with scripts that cannot work: one sentence with the way out, and exit 79, under both launchers."""

from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit
from testbed.local import script_run

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
    if how == "spawn-for-all":
        torch.multiprocessing.set_start_method("spawn", force=True)
    elastic.init()
    model = torch.nn.LazyLinear(4) if how == "lazy" else torch.nn.Linear(4, 4)
    if "lbfgs" in how:
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if how != "plain-lbfgs":
        options = {"op": {"adasum": hvd.Adasum, "sum": hvd.Sum}[how]} if how in ("adasum", "sum") else {}
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    writer = [].append if hvd.rank() == 0 else None
    skipped = []
    loading = {"num_workers": 1} if "spawn" in how else {}
    if how in ("spawn", "guarded-spawn"):
        loading["multiprocessing_context"] = "spawn"
    scheduler, scaler = torch.optim.lr_scheduler.StepLR(optimizer, 30), torch.amp.GradScaler("cpu")
    average = torch.optim.swa_utils.AveragedModel(model) if how == "left-out" else None

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum() * (1 + hvd.rank())
        loss.backward()
        for name, weight in model.named_parameters():
            hvd.allreduce_(weight.grad, name=name)
        return hvd.allreduce(loss.detach(), name="loss")

    @elastic.run
    def train(state):
        if how == "load" and (folder / "last.pt").exists():
            model.load_state_dict(torch.load(folder / "last.pt"))
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
                    loss = x.sum() * state.weight
                    if how == "not-finite" and hvd.rank() == 1 and state.step_count == 2 and not skipped:
                        skipped.append(True)
                        continue
                    (scaler.scale(loss) if how == "left-out" else loss).backward()
                    optimizer.step()
                if how == "left-out":
                    scheduler.step()
                    average.update_parameters(model)
                if how == "writer" and hvd.rank() == 0:
                    writer.__call__(state.step_count)
                if how == "load" and hvd.rank() == 0 and state.step_count == 1:
                    torch.save(model.state_dict(), folder / "last.pt")
                if how in ("load", "writer") and (hvd.rank(), hvd.size(), state.step_count) == (0, 2, 3):
                    os.kill(os.getpid(), signal.SIGKILL)
                state.commit()
            if how == "join":
                hvd.join()
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
    "join": "hvd.join(): a rank whose data has ended",
    "left-out": "the scheduler StepLR",
    "load": "the training function loads weights",
    "not-finite": "neither can ever be done",
    "spawn-for-all": 'below `if __name__ == "__main__":`',
    "sum": "adds the gradients",
    "writer": "was rank 1 at the beginning, and is rank 0 since a resize",
}


def run(folder: Path, how: str, launcher: str) -> tuple[int, str]:
    return script_run.ended(
        script_run.start(folder, SCRIPT, how, options=("--workers", "1:2:2", "--launcher", launcher))
    )


CASES = [
    *((how, "launch") for how in REFUSED),
    *((how, "horovodrun") for how in ("lbfgs", "spawn", "input", "writer")),  # others end as one of these
]


@pytest.mark.parametrize(
    ("how", "launcher"),
    [pytest.param(*case, marks=[pytest.mark.core] if case == ("input", "launch") else []) for case in CASES],
)
def test_one_sentence_with_the_way_out(how: str, launcher: str, tmp_path: Path) -> None:
    code, said = run(tmp_path, how, launcher)

    assert code == Exit.SCRIPT_MISTAKE, said
    assert REFUSED[how] in said, said
    assert not list(tmp_path.glob("done-*"))


@pytest.mark.parametrize("how", ["plain-lbfgs", "guarded-spawn", "skip"])
def test_the_way_out_works(how: str, tmp_path: Path) -> None:
    code, said = run(tmp_path, how, "launch")

    assert code == Exit.OK, said
    assert len(list(tmp_path.glob("done-*"))) == 2, said
    skipped = {file.name for file in tmp_path.glob("skipped-*")}
    assert skipped == ({"skipped-0", "skipped-1"} if how == "skip" else set())
