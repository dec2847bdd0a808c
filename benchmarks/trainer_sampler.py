"""The cost of finding the next samples at an epoch's start, a resize and a batch, compared with Horovod's sampler.

    python -m benchmarks.trainer_sampler [--samples 100000000] [--stock 5000000]

Horovod's ElasticSampler makes and shuffles a Python list at every epoch and every reset, so it runs with fewer samples:
its time is proportional to their number.
"""

import argparse
import itertools
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from horovod.torch.elastic.sampler import ElasticSampler

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.trainer import init
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder

BATCH = 128
FIRST, RESIZED = "an epoch's first batch after ms", "the first batch after a resize in mid-epoch, ms"
MEMORY = "more memory, MB"
PROMISES = {FIRST: 1000, RESIZED: 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=100_000_000)
    parser.add_argument("--stock", type=int, default=5_000_000)
    options = parser.parse_args()
    init()
    record = Record(name="trainer_sampler", question="What does it cost to find the next samples?")
    ours, stock = _ours(options.samples), _stock(options.samples, options.stock)
    record.add(
        Table(
            name="trainer-sampler",
            title=f"{options.samples:,} samples, batches of {BATCH}",
            columns=(
                Column(title=""),
                Column(title="hvd-elastic", format=".4g"),
                Column(title="ElasticSampler", format=".4g"),
                Column(title="promised, at most", format=".4g"),
            ),
            rows=[[title, ours[title], stock.get(title), PROMISES.get(title)] for title in ours],
            note=f"ElasticSampler was measured with {options.stock:,} samples; its figures are in proportion. It makes "
            f"the whole list, from which a batch is then taken. numpy {np.__version__}.",
        )
    )
    for title, bound in PROMISES.items():
        found = ours[title]
        assert isinstance(found, float)
        record.promise(Aim(what=f"{title}, of {options.samples:,} samples", bound=bound, measured=found, format=".4g"))
    record.write()


def _ours(length: int) -> dict[str, Value]:
    before = _peak_mb()
    first, _ = _timed(lambda: _first_batch(length, epoch=1, position=0, rank=3, size=8))
    resized, _ = _timed(lambda: _first_batch(length, epoch=1, position=length // 3, rank=1, size=5))
    plan = EpochPlan(length=length, position=0, policy=BatchPolicy(per_worker=BATCH), rank=3, size=8)
    count = 2000
    order = SampleOrder(length, seed=1)
    batches, _ = _timed(lambda: sum(map(len, itertools.islice(plan.indices(order), count))))
    counting, _ = _timed(lambda: sum(1 for _ in itertools.islice(plan.micro_batches(), count)))
    return {
        FIRST: first * 1e3,
        RESIZED: resized * 1e3,
        "a batch, us": batches / count * 1e6,
        "counting the samples of a batch, us": counting / count * 1e6,
        MEMORY: _peak_mb() - before,
    }


def _stock(length: int, measured: int) -> dict[str, Value]:
    before = _peak_mb()
    sampler = ElasticSampler(range(2), shuffle=True)
    sampler.dataset = range(measured)
    seconds, _ = _timed(lambda: (sampler.set_epoch(1), next(iter(sampler))))
    scaled = seconds * length / measured * 1e3
    return {FIRST: scaled, RESIZED: scaled, MEMORY: (_peak_mb() - before) * length / measured}


def _first_batch(length: int, *, epoch: int, position: int, rank: int, size: int) -> list[int]:
    order = SampleOrder(length, seed=1, epoch=epoch)
    plan = EpochPlan(length=length, position=position, policy=BatchPolicy(per_worker=BATCH), rank=rank, size=size)
    return next(plan.indices(order))


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
