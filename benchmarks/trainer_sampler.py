"""The cost of finding the next samples at an epoch's start, a resize and a batch, compared with Horovod's sampler.

    python -m benchmarks.trainer_sampler [--samples 100000000] [--stock 5000000]

Horovod's ElasticSampler makes and shuffles a Python list at every epoch and every reset, so it runs with fewer samples:
its time is proportional to their number.
"""

import argparse
import itertools
import os
import platform
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from horovod.torch.elastic.sampler import ElasticSampler

from hvd_elastic.trainer import init
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=100_000_000)
    parser.add_argument("--stock", type=int, default=5_000_000)
    options = parser.parse_args()
    init()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, numpy {np.__version__}")
    length = options.samples
    before = _peak_mb()
    seconds, _ = _timed(lambda: _first_batch(length, epoch=1, position=0, rank=3, size=8))
    print(f"{length:,} samples: an epoch's first batch of 128 after {seconds * 1e3:.1f} ms (promise: 1 s)")
    seconds, _ = _timed(lambda: _first_batch(length, epoch=1, position=length // 3, rank=1, size=5))
    print(f"{length:,} samples: first batch after a resize in mid-epoch after {seconds * 1e3:.1f} ms (promise: 1 s)")
    plan = EpochPlan(length=length, position=0, policy=BatchPolicy(per_worker=128), rank=3, size=8)
    count = 2000
    order = SampleOrder(length, seed=1)
    seconds, taken = _timed(lambda: sum(map(len, itertools.islice(plan.indices(order), count))))
    print(f"{length:,} samples: {seconds / count * 1e6:.0f} us a batch of 128, {seconds / taken * 1e9:.0f} ns a sample")
    seconds, _ = _timed(lambda: sum(1 for _ in itertools.islice(plan.micro_batches(), count)))
    print(f"{length:,} samples: {seconds / count * 1e6:.1f} us a batch to count its samples")
    print(f"{length:,} samples: {_peak_mb() - before:.0f} MB more memory in all")

    before = _peak_mb()
    sampler = ElasticSampler(range(2), shuffle=True)
    sampler.dataset = range(options.stock)
    seconds, _ = _timed(lambda: (sampler.set_epoch(1), next(iter(sampler))))
    scaled = seconds * length / options.stock
    memory = (_peak_mb() - before) * length / options.stock
    print(
        f"ElasticSampler, {options.stock:,} samples: {seconds:.2f} s an epoch or a reset; in proportion {scaled:.0f} s"
    )
    print(f"ElasticSampler, in proportion for {length:,} samples: {memory / 1e3:.1f} GB")


def _first_batch(length: int, *, epoch: int, position: int, rank: int, size: int) -> list[int]:
    order = SampleOrder(length, seed=1, epoch=epoch)
    plan = EpochPlan(length=length, position=position, policy=BatchPolicy(per_worker=128), rank=rank, size=size)
    return next(plan.indices(order))


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
