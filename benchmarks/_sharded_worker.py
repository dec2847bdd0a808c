"""The training job of benchmarks/sharded_optimizer.py: Adam, whole on each rank or sharded, in worlds of any size.

It tells what it sees as JSON lines in TEST_LOG: each step and commit, each part of each `sync()`, and after `--steps`
steps what it has in memory. Then it trains on until the file STOP in its folder is there.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import psutil
import torch

import hvd_elastic as elastic
from hvd_elastic.trainer.state.state_tree import leaves

WARM = 2
"""Steps before those that are timed: the first ones allocate the state and both commits."""

parser = argparse.ArgumentParser()
parser.add_argument("--sharded", action="store_true")
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--layers", type=int, required=True)
parser.add_argument("--steps", type=int, required=True)
options = parser.parse_args()
elastic.init()
torch.manual_seed(0)
LOG = (Path(os.environ["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)
STOP = Path(os.environ["TEST_LOG"]) / "STOP"
AT_START = psutil.Process().memory_info().rss


def log(kind: str, **figures: Any) -> None:
    LOG.write(json.dumps({kind: {"rank": hvd.rank(), "size": hvd.size(), "time": time.time(), **figures}}) + "\n")


@contextmanager
def timed(into: dict[str, list[float]], name: str) -> Iterator[None]:
    """Add the wall seconds, and the CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        before = into.get(name, [0.0, 0.0])
        into[name] = [before[0] + time.perf_counter() - wall, before[1] + time.process_time() - cpu]


class TimedState(elastic.State):
    """Times the parts of `sync()`."""

    def sync(self) -> None:
        """Tell how long each part took, after all ranks have come to its begin."""
        parts: dict[str, list[float]] = {}
        hvd.allreduce(torch.zeros(1), name="bench.begin")
        owners = {
            "receive": self._present,
            "agree_on_commit": self._sharded,
            "move": self._sharded,
            "copy": self._sharded,
            "save": self,
        }
        for name, owner in owners.items():
            vars(owner)[name] = _timed(parts, name, getattr(owner, name))
        try:
            with timed(parts, "sync"):
                super().sync()
        finally:
            for name, owner in owners.items():
                del vars(owner)[name]
        log("sync", step=self._commits.step, **parts)


def _timed(parts: dict[str, list[float]], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        with timed(parts, name):
            return method(*args, **named)

    return call


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Of the optimizer's state on this rank."""
    values = [value for each in optimizer.state.values() for value in each.values()]
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def held_bytes(state: elastic.State) -> int:
    """Of the commits and the copies of other ranks' shares, in host memory."""
    commits = [tensor for tree in state._commits.memory.kept for _, tensor in leaves(tree)]
    generations = [shards for each in state._sharded._shares._generations for shards in each.shards.values()]
    copies = [tensor for shards in generations for bucket in shards for tensor in bucket.values()]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in (*commits, *copies)}.values())


def main() -> None:
    layers = [torch.nn.Linear(options.width, options.width, bias=False) for _ in range(options.layers)]
    model = torch.nn.Sequential(*layers)
    optimizer = (
        elastic.ShardedOptimizer(model.parameters(), torch.optim.Adam, lr=1e-4)
        if options.sharded
        else hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=1e-4), named_parameters=model.named_parameters()
        )
    )

    @elastic.run
    def train(state: elastic.State) -> None:
        step = 0
        while not elastic.agree(STOP.exists()):
            batch = torch.ones(1, options.width)
            hvd.allreduce(torch.zeros(1), name="bench.step")
            took: dict[str, list[float]] = {}
            with timed(took, "step"):
                model(batch).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            with timed(took, "commit"):
                state.commit()
            step += 1
            if step > WARM:
                log("step", **took)
            if step == WARM + options.steps:
                memory = {"state": state_bytes(optimizer), "held": held_bytes(state), "at_start": AT_START}
                most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
                log("memory", **memory, rss=psutil.Process().memory_info().rss, most=most)

    train(TimedState(model=model, optimizer=optimizer))


if __name__ == "__main__":
    main()
