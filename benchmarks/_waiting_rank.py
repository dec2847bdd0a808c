"""The training job of benchmarks/waiting_ranks.py: steps that compute for a while and then average, and one late rank.

Each rank tells what it sees as JSON lines in TEST_LOG.
"""

import argparse
import json
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from horovod.torch import mpi_ops

import hvd_elastic as elastic

parser = argparse.ArgumentParser()
parser.add_argument("--spinning", action="store_true", help="wait as Horovod does")
parser.add_argument("--computes", type=float, nargs="+", required=True, help="milliseconds of CPU in a step")
parser.add_argument("--seconds", type=float, required=True, help="that are computed for each of them")
parser.add_argument("--late", type=float, required=True, help="seconds by which rank 0 is late once")
options = parser.parse_args()
if options.spinning:
    wait, is_done = mpi_ops.mpi_lib.horovod_torch_wait_and_clear, mpi_ops.mpi_lib.horovod_torch_poll

    def spins(handle: int) -> None:
        """As Horovod's `WaitAndClear` does without the patch `sleeping-wait`."""
        while not is_done(handle):
            os.sched_yield()
        wait(handle)

    mpi_ops.mpi_lib.horovod_torch_wait_and_clear = spins
elastic.init()
LOG = (Path(os.environ["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)
WEIGHTS, GRADIENTS = torch.randn(128, 128), torch.zeros(1000)


def compute(seconds: float) -> None:
    """Take so much of a core, however long that lasts."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        _ = WEIGHTS @ WEIGHTS


def tell(kind: str, **figures: float) -> None:
    LOG.write(json.dumps({kind: {"rank": hvd.rank(), **figures}}) + "\n")


@elastic.run
def train(state: elastic.State) -> None:  # noqa: ARG001  as `elastic.run` calls it
    for milliseconds in options.computes:
        steps = round(options.seconds / max(milliseconds / 1e3, 2e-3))
        hvd.barrier()
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            compute(milliseconds / 1e3)
            hvd.allreduce(GRADIENTS, name="gradients")
        seconds, taken = time.perf_counter() - began, time.process_time() - cpu
        tell("step", computes=milliseconds, ms=seconds / steps * 1e3, cpu_ms=taken / steps * 1e3)
    hvd.barrier()
    began, cpu = time.perf_counter(), time.process_time()
    if hvd.rank() == 0:
        time.sleep(options.late)
    hvd.allreduce(GRADIENTS, name="late")
    tell("late", seconds=time.perf_counter() - began, cpu=time.process_time() - cpu)


train(elastic.State(step=0))
