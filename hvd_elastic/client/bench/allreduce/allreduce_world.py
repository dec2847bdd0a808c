"""What the measurement asks of a library: a world of ranks that sum float32 numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hvd_elastic.mpijob.contract import Exit, HvdElasticError


class WorldError(HvdElasticError):
    """The world cannot be measured: a library is missing, or it has one rank only."""

    exit_code = Exit.BAD_INPUT


class BrokenWorldError(HvdElasticError):
    """A rank was lost while the world was measured."""

    exit_code = Exit.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFacts:
    """Which world was measured."""

    library: str
    """`horovod` or `mpi4py`."""
    backend: str
    """What carries the numbers: `nccl`, `gloo` or `mpi` of Horovod, the MPI library of mpi4py."""
    device: str
    """`cpu` or `cuda`."""
    ranks: int
    nodes: int


class Message(Protocol):
    """A buffer of float32 in one rank."""

    def fill(self, value: float) -> None:
        """Set every number."""

    def allreduce(self) -> None:
        """Replace every number by its sum over all ranks. Returns when that has happened in this rank."""

    def is_filled_with(self, value: float) -> bool:
        """Whether every number is `value`."""


class AllreduceWorld(Protocol):
    """A world, seen from one of its ranks. Every rank makes the same calls in the same order."""

    @property
    def rank(self) -> int:
        """Of this process, from 0."""

    @property
    def facts(self) -> WorldFacts:
        """The same in every rank."""

    def message(self, size: int) -> Message:
        """A buffer of `size` bytes."""

    def barrier(self) -> None:
        """Return when every rank has called it."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each value, the largest of all ranks."""
