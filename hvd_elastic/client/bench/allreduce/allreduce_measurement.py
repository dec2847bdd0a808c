"""Measures how long all-reduces take, by message size. The clock is passed in.

One iteration takes as long as its slowest rank: ranks meet at a barrier, each times its own call, and the largest of
these times counts. Ranks do not leave a barrier at one instant, so the time of a small message includes that too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from hvd_elastic.client.bench.allreduce.allreduce_world import AllreduceWorld, WorldError
from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.system.plain_words import count_words

GIGA: Final = 1e9
"""nccl-tests count in GB, not GiB."""


class WrongSumError(HvdElasticError):
    """An all-reduce has returned wrong numbers. How fast it was does not matter then."""

    exit_code = Exit.ERROR


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Bytes per second: the message over the time."""
    return size / seconds


def bus_bandwidth(size: int, seconds: float, *, ranks: int) -> float:
    """Bytes per second over the busiest link: `algbw * 2(n-1)/n`, as nccl-tests define it (doc/PERFORMANCE.md).

    It compares with what the hardware can do, whatever the number of ranks: of S bytes, each rank sends and receives at
    least 2(n-1)/n S. 0 for one rank, which moves nothing.
    """
    return algorithm_bandwidth(size, seconds) * 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class AllreduceRow:
    """All iterations with one message size."""

    size: int
    """Bytes of the message in each rank."""
    ranks: int
    seconds: tuple[float, ...]
    """Of each iteration, at least one, each above 0."""

    def document(self) -> dict[str, float | int]:
        """Plain data: times in seconds, bandwidths of the median in GB/s."""
        middle = median(self.seconds)
        return {
            "bytes": self.size,
            "min_seconds": min(self.seconds),
            "median_seconds": middle,
            "max_seconds": max(self.seconds),
            "algorithm_gb_per_second": algorithm_bandwidth(self.size, middle) / GIGA,
            "bus_gb_per_second": bus_bandwidth(self.size, middle, ranks=self.ranks) / GIGA,
        }


def measure(
    world: AllreduceWorld, sizes: Sequence[int], *, warm_up: int, iterations: int, clock: Callable[[], float]
) -> Iterator[AllreduceRow]:
    """Measure each size in turn. Every rank runs this and gets the same rows.

    The first all-reduce of each size is checked. The timed ones sum zeros: other numbers would grow without bound.

    Args:
        world: of two ranks at least.
        sizes: bytes of each message, multiples of 4.
        warm_up: all-reduces of each size that are not timed, beside the one that is checked.
        iterations: those that are.
        clock: seconds, such as `time.perf_counter`.

    Raises WorldError for one rank; WrongSumError in every rank if one rank got a wrong sum.
    """
    if world.facts.ranks < 2:
        raise WorldError(
            "this world has one rank, which sends nothing: start several, "
            "such as: horovodrun -np 2 hvd-elastic bench allreduce"
        )
    for size in sizes:
        yield AllreduceRow(size=size, ranks=world.facts.ranks, seconds=_times(world, size, warm_up, iterations, clock))


def _times(
    world: AllreduceWorld, size: int, warm_up: int, iterations: int, clock: Callable[[], float]
) -> tuple[float, ...]:
    message = world.message(size)
    message.fill(world.rank + 1.0)
    message.allreduce()
    ranks = world.facts.ranks
    is_wrong = not message.is_filled_with(ranks * (ranks + 1) / 2)
    if world.largest([float(is_wrong)])[0]:
        raise WrongSumError(f"an all-reduce of {size} bytes over {count_words(ranks, 'rank')} returned a wrong sum")
    message.fill(0.0)
    for _ in range(warm_up):
        message.allreduce()
    times = []
    for _ in range(iterations):
        world.barrier()
        begin = clock()
        message.allreduce()
        times.append(clock() - begin)
    return tuple(world.largest(times))
