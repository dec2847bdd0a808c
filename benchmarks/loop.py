"""The cost of a `Trainer` step, compared with the same loop on raw Horovod: two processes take turns, block by block.

    python -m benchmarks.loop [--processes 12] [--pairs 10] [--steps 10] [--batch 512] [--width 1024]

There is no launcher, and one thread on the CPU: this measures the loop with its commits, events and metrics, not the
network. Each loop has its own process, as in training: in one process, the second loop would reuse the memory that the
first has freed, an effect larger than the one measured. While one process runs a block, the other waits. A block of the
Trainer contains one commit and goes from the middle of one interval to the middle of the next, so that it includes the
copy that overlaps the next step. Each block is compared with the mean of the raw blocks before and after it, and a pair
of processes gives the median of these differences. The result is the median over the pairs: by the clock and, for a
machine that others use too, by the CPU time of all threads.

Between steps, glibc returns memory to the kernel and requests it again, so a block is a few per cent faster or slower
by chance. Unless `--return-memory` is given, both processes keep their memory.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, NamedTuple, Self

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, spread, spread_columns
from hvd_elastic.trainer.fit.trainer import Trainer
from hvd_elastic.trainer.fit.trainer_options import Checkpointing

WARM: Final = 3
"""Blocks that do not count: the first commits allocate their memory and are verified."""

PROMISED: Final = 1
"""Per cent that the Trainer takes more, at most."""
TITLES: Final = {"clock": "by the clock", "cpu": "CPU time"}

EPOCH: Final = 8
"""Blocks in an epoch. The end of an epoch has its own commit, so it should fall into few blocks."""

KEEP_MEMORY: Final = {"MALLOC_TRIM_THRESHOLD_": str(4 << 30), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""See glibc's mallopt(3). The second value is the largest that it allows."""


class Spent(NamedTuple):
    """The time that a block took."""

    clock: float
    """Seconds."""
    cpu: float
    """Seconds, over all threads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=12, help="pairs of processes, one after the other")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of blocks, for each pair of processes")
    parser.add_argument("--steps", type=int, default=10, help="steps in a block, which contains one commit")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--return-memory", action="store_true", help="leave glibc as it is")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        SIDES[options.side](options)
        return
    record = Record(name="loop", question="What does a step of the Trainer cost, beside the same loop on raw Horovod?")
    results = [measured(options) for _ in range(options.processes)]
    record.add(table(results, options))
    more = medians([more for _, more in results])
    for name, title in TITLES.items():
        what = f"per cent that a step of the Trainer takes more than raw Horovod, {title}"
        record.promise(Aim(what=what, bound=PROMISED, measured=getattr(more, name), format="+.2f"))
    record.write()


# --- The process that compares ---------------------------------------------------------------------------------------


class Side:
    """One of the two processes."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.loop", *sys.argv[1:], "--side", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ if options.return_memory else {**os.environ, **KEEP_MEMORY},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closing its input ends it

    def block(self) -> Spent:
        """Run one block in the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a process has ended with {self._process.wait()}")
        return Spent(*json.loads(line))


def measured(options: argparse.Namespace) -> tuple[Spent, Spent]:
    """Return the time of a raw block, and by how many per cent a block of the Trainer takes longer."""
    with Side("raw", options) as raw, Side("trainer", options) as trainer:
        for _ in range(WARM):
            raw.block(), trainer.block()
        before, raw_blocks, more = raw.block(), [], []
        for _ in range(options.pairs):
            mine, after = trainer.block(), raw.block()
            more.append(Spent(*(100 * (2 * t / (b + a) - 1) for t, b, a in zip(mine, before, after, strict=True))))
            raw_blocks.append(after)
            before = after
    return medians(raw_blocks), medians(more)


def medians(blocks: list[Spent]) -> Spent:
    return Spent(*(statistics.median(values) for values in zip(*blocks, strict=True)))


def table(results: list[tuple[Spent, Spent]], options: argparse.Namespace) -> Table:
    raw, more = (list(each) for each in zip(*results, strict=True))
    parameters = sum(weight.numel() for weight in model_of(options.width).parameters()) / 1e6
    return Table(
        name="loop",
        title=f"{parameters:.1f} M parameters, batches of {options.batch}, a commit each {options.steps} steps",
        columns=(
            Column(title=""),
            Column(title="raw step, ms", format=".1f"),
            *spread_columns("the Trainer takes more, %", format="+.2f"),
            Column(title="promised, at most", format="+.0f"),
        ),
        rows=[
            [
                title,
                1000 * getattr(medians(raw), name) / options.steps,
                *spread([getattr(each, name) for each in more]),
                PROMISED,
            ]
            for name, title in TITLES.items()
        ],
        note=f"Over {options.processes} pairs of processes, each the median of {options.pairs} blocks. torch "
        f"{torch.__version__}.",
    )


# --- The processes that are compared ---------------------------------------------------------------------------------


class Enough(Exception):  # noqa: N818  it is not an error
    """No further block is requested."""


class Turns:
    """The blocks of a process. Each is requested by a line of input, and answered with its time."""

    def __init__(self) -> None:
        self._begun: Spent | None = None

    def next(self) -> None:
        """End a block, and begin the next one when it is requested. Raises Enough."""
        if self._begun is not None:
            end = now()
            print(json.dumps([end.clock - self._begun.clock, end.cpu - self._begun.cpu]), flush=True)
        if not sys.stdin.readline():
            raise Enough
        self._begun = now()


def now() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


def train_raw(options: argparse.Namespace) -> None:
    """Train with the loop in Horovod's documentation, without elasticity."""
    data, model = problem(options)
    plain = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    turns = Turns()
    with contextlib.suppress(Enough):
        for step, batch in zip(count(), batches(data, options)):
            if step % options.steps == 0:
                turns.next()
            optimizer.zero_grad()
            loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def batches(data: TensorDataset, options: argparse.Namespace) -> Iterator[Any]:
    while True:
        yield from DataLoader(data, batch_size=options.batch, shuffle=True)


def train_by_trainer(options: argparse.Namespace) -> None:
    """Train the same with the Trainer. A block begins in the middle between two commits."""
    data, model = problem(options)
    turns, steps = Turns(), count()

    def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        if next(steps) % options.steps == options.steps // 2:
            turns.next()
        return loss_of(model, batch)

    trainer = Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        loss=loss,
        data=data,
        epochs=10**6,
        batch_size=options.batch,
        checkpointing=Checkpointing(commit_every=options.steps),
    )
    with contextlib.suppress(Enough):
        trainer.fit()


def problem(options: argparse.Namespace) -> tuple[TensorDataset, torch.nn.Module]:
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    samples = EPOCH * options.steps * options.batch
    data = TensorDataset(torch.randn(samples, options.width), torch.randint(0, 10, (samples,)))
    return data, model_of(options.width)


def model_of(width: int) -> torch.nn.Module:
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


SIDES: Final = {"raw": train_raw, "trainer": train_by_trainer}


if __name__ == "__main__":
    main()
