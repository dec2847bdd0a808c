"""Algorithm bandwidth and bus bandwidth of an all-reduce, as nccl-tests define them (its doc/PERFORMANCE.md).

Bus bandwidth compares with what the hardware can do, whatever the number of ranks: of S bytes, each rank sends and
receives at least 2(n-1)/n S.
"""

from typing import Final

GIGA: Final = 1e9
"""nccl-tests count in GB, not GiB."""


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Bytes per second: the message over the time."""
    return size / seconds


def bus_bandwidth(size: int, seconds: float, *, ranks: int) -> float:
    """Bytes per second over the busiest link: `algbw * 2(n-1)/n`. 0 for one rank, which moves nothing."""
    return algorithm_bandwidth(size, seconds) * 2 * (ranks - 1) / ranks
