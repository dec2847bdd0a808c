"""What `Trainer` costs a step, beside the same loop on raw Horovod: blocks of steps in turn.

    python -m benchmarks.loop [--processes 6] [--pairs 12] [--steps 10] [--batch 512] [--width 1024]

Processes without a launcher, one after the other, on the CPU: what is measured is the loop, its commits, events and
metrics, not the network. The raw loop runs inside the loss function of the Trainer, between two of its steps, so both
see the same machine. A block of the Trainer holds one commit, from the middle of one interval to the middle of the
next, so that the copy that runs beside the next step is paid for where it belongs. Every block is compared with the
mean of the raw blocks before and after it; a process gives the median of these differences. Where in memory its two
models lie is a matter of luck that lasts as long as the process, and can be worth more than what is looked for: so
there are several processes, every second of which makes the raw model first. Given are their medians; by the clock and,
for a machine that others use too, by the CPU time of all threads.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer.loop import Trainer

WARM = 3
"""Blocks that are left out: the first commits allocate their memory and are verified."""

Spent = tuple[float, float]
"""Seconds by the clock, and of CPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=12, help="of blocks, in each process")
    parser.add_argument("--steps", type=int, default=10, help="of a block, which holds one commit")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--raw-first", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.processes == 1:
        print(json.dumps(measured(options)))
        return
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start, torch {torch.__version__}")
    report([in_a_process(number) for number in range(options.processes)], options)


def in_a_process(number: int) -> dict[str, float]:
    """What `measured` says there."""
    order = ["--raw-first"] if number % 2 else []
    command = [sys.executable, "-m", "benchmarks.loop", *sys.argv[1:], "--processes", "1", *order]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, float] = json.loads(said.splitlines()[-1])
    return result


def measured(options: argparse.Namespace) -> dict[str, float]:
    """A raw step's milliseconds, and by how many per cent the Trainer's takes longer: the clock's, and of CPU time."""
    hvd.init()
    torch.set_num_threads(1)
    blocks = Blocks(options)
    with contextlib.suppress(Enough):
        blocks.trainer.fit()
    ours, raw = blocks.ours[WARM:], blocks.raw[WARM:]
    result = {"step": 1000 * statistics.median(clock for clock, _ in raw) / options.steps}
    for index, name in enumerate(("clock", "CPU")):
        result[name] = statistics.median(
            100 * (mine[index] / ((before[index] + after[index]) / 2) - 1)
            for mine, before, after in zip(ours, raw, raw[1:], strict=False)
        )
    return result


class Enough(Exception):  # noqa: N818  it is no error
    """All blocks are taken."""


def model_of(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def now() -> Spent:
    return time.perf_counter(), time.process_time()


@dataclass(slots=True)
class Blocks:
    """The Trainer, and the raw loop inside its loss function."""

    options: argparse.Namespace
    ours: list[Spent] = field(default_factory=list)
    raw: list[Spent] = field(default_factory=list)
    trainer: Trainer = field(init=False)
    _raw_steps: Iterator[None] = field(init=False)
    _asked: int = 0
    _begun: Spent | None = None

    def __post_init__(self) -> None:
        options = self.options
        samples = options.steps * options.batch
        data = TensorDataset(torch.randn(samples, options.width), torch.randint(0, 10, (samples,)))
        self._raw_steps = raw_steps(data, options)
        if options.raw_first:
            next(self._raw_steps)
        model = model_of(options.width)
        self.trainer = Trainer(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
            loss=self.loss,
            data=data,
            epochs=10**6,
            batch_size=options.batch,
            commit_every=options.steps,
        )

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """Called at each step of the Trainer; takes a block of the raw loop in the middle between two commits."""
        if self._asked % self.options.steps == self.options.steps // 2:
            self._turn()
        self._asked += 1
        return loss_of(model, batch)

    def _turn(self) -> None:
        if self._begun is not None:
            self.ours.append(between(self._begun, now()))
        begin = now()
        for _ in range(self.options.steps):
            next(self._raw_steps)
        self.raw.append(between(begin, now()))
        if len(self.raw) > self.options.pairs + WARM:
            raise Enough
        self._begun = now()


def raw_steps(data: TensorDataset, options: argparse.Namespace) -> Iterator[None]:
    """Steps of the loop that Horovod's documentation shows, without any elasticity."""
    model = model_of(options.width)
    plain = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    while True:
        for batch in DataLoader(data, batch_size=options.batch, shuffle=True):
            optimizer.zero_grad()
            loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            yield


def between(begin: Spent, end: Spent) -> Spent:
    return end[0] - begin[0], end[1] - begin[1]


def report(results: list[dict[str, float]], options: argparse.Namespace) -> None:
    step = statistics.median(result["step"] for result in results)
    parameters = sum(weight.numel() for weight in model_of(options.width).parameters()) / 1e6
    print(f"{parameters:.1f} M parameters, batches of {options.batch}: raw step {step:.1f} ms")
    print(f"Trainer with a commit each {options.steps} steps, {options.pairs} blocks a process (promise: at most +1 %)")
    for name in ("clock", "CPU"):
        medians = [result[name] for result in results]
        print(f"  {name:6} median {statistics.median(medians):+.2f} %, of " + ", ".join(f"{m:+.2f}" for m in medians))


if __name__ == "__main__":
    main()
