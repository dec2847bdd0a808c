"""The cost of a commit: `elastic.State` compared with Horovod's TorchState, same model, same process.

    python -m benchmarks.trainer_commit [--parameters 100] [--commits 9] [--step 0.1] [--steps 10]

A step is a pause, as on a host whose GPU computes, followed by the optimizer's step. The blocked time is what the
training thread loses: the time in `commit()`, and before the optimizer's next step the wait for copies in progress.
With `overlap=True` the copy costs nothing if memory is copied within the time of a step.

Beside it, what a worker computes when all compare what they hold: the fingerprint of parameters and optimizer state.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.trainer import init
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.memory.host_memory import VERIFIED_COMMITS
from hvd_elastic.trainer.state.replicas.fingerprint import fingerprint
from hvd_elastic.trainer.state.replicas.replicated import Replicated
from hvd_elastic.trainer.state.state_objects import StateObjects

WARM = VERIFIED_COMMITS + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parameters", type=int, default=100, help="millions")
    parser.add_argument("--commits", type=int, default=9)
    parser.add_argument("--step", type=float, default=0.1, help="seconds")
    parser.add_argument("--steps", type=int, default=10, help="between commits")
    options = parser.parse_args()
    init()
    record = Record(name="trainer_commit", question="How long does a commit keep training waiting?")
    for momentum, name in ((0.9, "momentum"), (0.0, "plain")):
        table = _table(options, momentum, name)
        record.add(table)
        record.promise(*_aims(table, name))
    record.add(_fingerprints(options))
    record.write()


def _fingerprints(options: argparse.Namespace) -> Table:
    rows: list[list[Value]] = []
    for title, make in (
        (f"{options.parameters} M parameters in layers of 4 M", partial(_model, options.parameters, 0.9)),
        ("1 M parameters in 500 layers of 2,000", _deep_model),
    ):
        model, optimizer = make()
        state, _ = _ours(model, optimizer)
        held = tuple(Replicated.of(StateObjects(state, ("model", "optimizer")), ()).tensors.values())
        seconds = [_seconds(partial(fingerprint, held)) for _ in range(options.commits)]
        committing = [_seconds(state.commit) for _ in range(options.commits)]
        rows.append([title, statistics.median(seconds) * 1e3, statistics.median(committing) * 1e3])
        del model, optimizer, state, held
        gc.collect()
    return Table(
        name="trainer-commit-fingerprint",
        title="The fingerprint that workers compare, SGD with momentum 0.9",
        columns=(
            Column(title="state"),
            Column(title="fingerprint, ms", format=".1f"),
            Column(title="commit(), ms", format=".1f"),
        ),
        rows=rows,
        note="Computed at commits 1, 2, 4 and 8 of a world, before a checkpoint is stored, and else once in a "
        "thousand times as long as it takes.",
    )


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _deep_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    return _stepped(torch.nn.Sequential(*(torch.nn.Linear(2000, 1, bias=False) for _ in range(500))), 0.9)


def _aims(table: Table, name: str) -> Iterator[Aim]:
    """Of the state as it is, and of the one that copies beside the next step."""
    overlaps = "what is copied before commit() returns: elastic.State(overlap=True) copies beside the next step"
    for title, reason in (("elastic.State", overlaps), ("elastic.State(overlap=True)", "")):
        beside, share = (table.figures(column.title, rows=(title,))[0] for column in table.columns[-2:])
        what = f"a commit of {title}, {name}, keeps training waiting"
        yield Aim(what=f"{what}, as a share of TorchState", bound=0.5, measured=beside)
        yield Aim(what=f"{what}, as a share of the work", bound=0.01, measured=share, format=".2%", reason=reason)


def _table(options: argparse.Namespace, momentum: float, name: str) -> Table:
    work = options.step * options.steps
    rows: list[list[Value]] = []
    stock = 0.0
    for title, make in (
        ("hvd.elastic.TorchState", _stock),
        ("elastic.State", _ours),
        ("elastic.State(overlap=True)", _overlapped),
    ):
        committing, waiting = _blocked(make, options, momentum)
        lost = committing + waiting
        stock = stock or lost
        rows.append([title, lost * 1e3, committing * 1e3, waiting * 1e3, lost / stock, lost / work])
    megabytes = options.parameters * (8 if momentum else 4)
    return Table(
        name=f"trainer-commit-{name}",
        title=f"{options.parameters} M parameters, SGD with momentum {momentum:g}: {megabytes} MB of state",
        columns=(
            Column(title="state"),
            Column(title="blocked, ms", format=".1f"),
            Column(title="in commit()", format=".1f"),
            Column(title="before the next step", format=".1f"),
            Column(title="of TorchState", format=".2f"),
            Column(title=f"of {work:g} s of work", format=".2%"),
        ),
        rows=rows,
        note="Promised: at most 0.5 of TorchState, and 1% of the work. "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads.",
    )


def _blocked(make: Callable[..., Any], options: argparse.Namespace, momentum: float) -> tuple[float, float]:
    """Return the median seconds lost in a commit and after it, without the first commits, which allocate and verify."""
    model, optimizer = _model(options.parameters, momentum)
    state, waited = make(model, optimizer)
    lost: list[tuple[float, float]] = []
    for _ in range(options.commits + WARM):
        start, before = time.perf_counter(), waited[0]
        state.commit()
        committed = time.perf_counter() - start
        for _ in range(options.steps):
            time.sleep(options.step)
            _step(optimizer)
        lost.append((committed, waited[0] - before))
    del model, optimizer, state
    gc.collect()
    committing, waiting = zip(*sorted(lost[WARM:], key=sum), strict=True)
    middle = (len(committing) - 1) // 2
    return committing[middle], waiting[middle]


def _model(millions: int, momentum: float) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return a model with layers of 4 M weights, as in a transformer of that size."""
    return _stepped(torch.nn.Sequential(*(torch.nn.Linear(2000, 2000) for _ in range(millions // 4))), momentum)


def _stepped(model: torch.nn.Module, momentum: float) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Give a model an optimizer that has its state."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, momentum=momentum)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    return model, optimizer


def _step(optimizer: torch.optim.Optimizer) -> None:
    """Run only the optimizer's hooks. Its computation is the same for all, and longer than what is measured."""
    groups, optimizer.param_groups = optimizer.param_groups, []
    try:
        optimizer.step()
    finally:
        optimizer.param_groups = groups


def _stock(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, list[float]]:
    return hvd.elastic.TorchState(model=model, optimizer=optimizer), [0.0]


def _ours(model: torch.nn.Module, optimizer: torch.optim.Optimizer, overlap: bool = False) -> tuple[Any, list[float]]:
    state, waited = State(model=model, optimizer=optimizer, overlap=overlap), [0.0]
    fence = state._commits.memory.fence

    def timed() -> None:
        start = time.perf_counter()
        fence()
        waited[0] += time.perf_counter() - start

    state._commits.memory.fence = timed  # type: ignore[method-assign]
    state.sync()
    return state, waited


def _overlapped(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, list[float]]:
    return _ours(model, optimizer, overlap=True)


if __name__ == "__main__":
    main()
