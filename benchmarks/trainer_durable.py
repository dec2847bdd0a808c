"""What the durable tier and odd states cost the training thread: `elastic.State`, beside Horovod's TorchState.

    python -m benchmarks.trainer_durable [--tensors 160000] [--floats 100000] [--mib 1024]

* hand-over: a commit of many small tensors is given to the durable tier. How long that blocks, and how long a step and
  its commit take while the tier stores it in the background.
* history: a commit of a list of numbers, such as the losses of all steps so far.
* memory: resident memory for a state of one size, before, during and after a durable save; and for one tensor of 1 MiB
  that has another key in each commit.
"""

import argparse
import gc
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

from hvd_elastic.trainer import init
from hvd_elastic.trainer.state.elastic_state import State

MIB = 1 << 20
SHARED_MEMORY = Path("/dev/shm")  # so that the disk is not what is measured
NEVER = "1000000000"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--tensors", type=int, default=160_000, help="of the state: four for each parameter under AdamW"
    )
    parser.add_argument("--floats", type=int, default=100_000, help="length of the list")
    parser.add_argument("--mib", type=int, default=1024, help="size of the state whose memory is measured")
    options = parser.parse_args()
    os.environ["HVD_ELASTIC_CHECKPOINT_STEPS"] = os.environ["HVD_ELASTIC_CHECKPOINT_SECONDS"] = NEVER
    init()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    hand_over(options.tensors // 4)
    history(options.floats)
    memory(options.mib)
    changing_keys(200)


def hand_over(parameters: int) -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(16)) for _ in range(parameters)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9, foreach=True)
    for weight in model:
        weight.grad = torch.ones_like(weight)
    optimizer.step()

    def step() -> None:
        optimizer.step()
        state.commit()

    with store() as url:
        state = State(model=model, optimizer=optimizer, checkpoint=url)
        state.sync()
        for _ in range(3):
            step()
        print(f"{4 * parameters} tensors")
        alone = [timed(step) for _ in range(5)]
        state._commits.memory.wait()
        blocked = timed(state._commits.save_to_store_async)
        began, beside = time.perf_counter(), []
        while state._commits.durable.busy:
            beside.append(timed(step))
        print(f"  hand-over                       blocks {blocked * 1e3:8.1f} ms")
        print(f"  a step and its commit           takes  {statistics.median(alone) * 1e3:8.1f} ms")
        print(
            f"  while the tier stores a commit         {statistics.median(beside or [0.0]) * 1e3:8.1f} ms, for "
            f"{time.perf_counter() - began:.1f} s"
        )
        state._commits.durable.close()


def history(floats: int) -> None:
    values = [float(number) for number in range(floats)]
    state, stock = State(history=list(values)), hvd.elastic.TorchState(history=list(values))
    state.sync()
    print(f"a list of {floats} floats")
    for name, commit in (("elastic.State.commit", state.commit), ("TorchState.save", stock.save)):
        print(f"  {name:31} blocks {statistics.median(timed(commit) for _ in range(7)) * 1e3:8.1f} ms", flush=True)


def memory(mib: int) -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(4 * MIB)) for _ in range(mib // 16)])
    with store() as url:
        base = resident()
        state = State(model=model, checkpoint=url)
        state.sync()
        state.commit()
        state._commits.memory.wait()
        committed, most = resident(), 0
        state._commits.save_to_store_async()
        while state._commits.durable.busy:
            state.commit()
            state._commits.memory.wait()
            most = max(most, resident())
        state._commits.durable.flush()
        for _ in range(2):
            state.commit()
        state._commits.memory.wait()
        gc.collect()
        print(f"a state of {mib} MiB: resident memory beyond the model's own")
        print(f"  after a commit                         {(committed - base) / MIB:8.0f} MiB")
        print(f"  while the tier stores a commit         {(most - base) / MIB:8.0f} MiB")
        print(f"  two commits after that                 {(resident() - base) / MIB:8.0f} MiB")
        state._commits.durable.close()


def changing_keys(commits: int) -> None:
    state: Any = State(cache={})
    state.sync()
    before = resident()
    for number in range(commits):
        state.cache = {f"epoch {number}": torch.ones(MIB // 4)}
        state.commit()
    print(f"one tensor of 1 MiB under {commits} keys, one after the other: {(resident() - before) / MIB:.0f} MiB")


@contextmanager
def store() -> Iterator[str]:
    """Yield the URL of an empty prefix in memory."""
    folder = tempfile.mkdtemp(prefix="bench-durable-", dir=SHARED_MEMORY)
    try:
        yield f"file://{folder}"
    finally:
        shutil.rmtree(folder)


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def resident() -> int:
    """Resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
