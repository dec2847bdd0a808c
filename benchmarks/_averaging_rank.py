"""The job of benchmarks/gradient_dtypes.py: averages the same gradients in one way after the other.

Each rank tells what it sees as JSON lines in TEST_LOG.
"""

import argparse
import json
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch

import hvd_elastic as elastic

parser = argparse.ArgumentParser()
parser.add_argument("--elements", type=int, required=True, help="of each gradient")
parser.add_argument(
    "--gradients", type=int, required=True, help="that are on their way together, as in a backward pass"
)
parser.add_argument("--steps", type=int, required=True)
options = parser.parse_args()
WAYS = {
    "float32": (torch.float32, hvd.Compression.none),
    "float16": (torch.float16, hvd.Compression.none),
    "bfloat16": (torch.bfloat16, hvd.Compression.none),
    "bfloat16, Compression.fp16": (torch.bfloat16, hvd.Compression.fp16),
}
elastic.init()
LOG = (Path(os.environ["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)


@elastic.run
def train(state: elastic.State) -> None:  # noqa: ARG001  as `elastic.run` calls it
    for step in range(options.steps + 1):
        for way, (dtype, compression) in WAYS.items():
            gradients = [torch.randn(options.elements).to(dtype) for _ in range(options.gradients)]
            hvd.barrier()
            began, cpu = time.perf_counter(), time.process_time()
            begun = []
            for number, gradient in enumerate(gradients):
                compressed, context = compression.compress(gradient)
                begun.append((hvd.allreduce_async_(compressed, name=f"{way}.{number}"), context))
            for gradient, (handle, context) in zip(gradients, begun, strict=True):
                gradient.set_(compression.decompress(hvd.synchronize(handle), context))
            seconds, taken = time.perf_counter() - began, time.process_time() - cpu
            if step:  # the first one connects
                LOG.write(json.dumps({"step": {"way": way, "ms": seconds * 1e3, "cpu_ms": taken * 1e3}}) + "\n")


train(elastic.State(step=0))
