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
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.trainer import init
from hvd_elastic.trainer.state.elastic_state import State

MIB = 1 << 20
SHARED_MEMORY = Path("/dev/shm")  # so that the disk is not what is measured
NEVER = "1000000000"
KEYS = 200


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
    record = Record(
        name="trainer_durable", question="What do the durable tier and odd states cost the training thread?"
    )
    record.add(hand_over(options.tensors // 4))
    record.add(history(options.floats))
    record.add(memory(options.mib))
    record.write()


def figures(name: str, title: str, what: str, rows: Sequence[Sequence[Value]], *, note: str = "") -> Table:
    """A table of one figure a row."""
    columns = (Column(title=""), Column(title=what, format=".1f"))
    return Table(name=name, title=title, columns=columns, rows=rows, note=note)


def hand_over(parameters: int) -> Table:
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
        alone = [timed(step) for _ in range(5)]
        state._commits.memory.wait()
        blocked = timed(state._commits.save_to_store_async)
        began, beside = time.perf_counter(), []
        while state._commits.durable.busy:
            beside.append(timed(step))
        seconds = time.perf_counter() - began
        state._commits.durable.close()
    return figures(
        "trainer-durable-tensors",
        f"A state of {4 * parameters} tensors",
        "ms",
        [
            ["the hand-over blocks for", blocked * 1e3],
            ["a step and its commit", statistics.median(alone) * 1e3],
            ["the same while the tier stores a commit", statistics.median(beside) * 1e3 if beside else None],
        ],
        note=f"The tier stored it in {seconds:.1f} s. torch {torch.__version__}.",
    )


def history(floats: int) -> Table:
    values = [float(number) for number in range(floats)]
    state, stock = State(history=list(values)), hvd.elastic.TorchState(history=list(values))
    state.sync()
    return figures(
        "trainer-durable-history",
        f"A state with a list of {floats} floats",
        "blocks for ms",
        [
            [name, statistics.median(timed(commit) for _ in range(7)) * 1e3]
            for name, commit in (("elastic.State.commit", state.commit), ("TorchState.save", stock.save))
        ],
    )


def memory(mib: int) -> Table:
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
        after = resident()
        state._commits.durable.close()
    return figures(
        "trainer-durable-memory",
        f"Resident memory beyond the model's own, of a state of {mib} MiB",
        "MiB",
        [
            ["after a commit", (committed - base) / MIB],
            ["while the tier stores a commit", (most - base) / MIB if most else None],
            ["two commits after that", (after - base) / MIB],
            [f"one tensor of 1 MiB under {KEYS} keys, one after the other", changing_keys(KEYS) / MIB],
        ],
    )


def changing_keys(commits: int) -> int:
    """How much more memory is resident after commits of a tensor under a new key each."""
    state: Any = State(cache={})
    state.sync()
    before = resident()
    for number in range(commits):
        state.cache = {f"epoch {number}": torch.ones(MIB // 4)}
        state.commit()
    return resident() - before


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
