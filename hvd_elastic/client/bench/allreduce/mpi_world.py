"""The world of MPI when this process was started by `mpirun`, through mpi4py."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hvd_elastic.client.bench.allreduce.allreduce_world import WorldError, WorldFacts
from hvd_elastic.client.bench.allreduce.message_sizes import ELEMENT_BYTES


class MpiMessage:
    """An array, summed in place."""

    def __init__(self, size: int, mpi: Any) -> None:
        self._array = np.zeros(size // ELEMENT_BYTES, dtype=np.float32)
        self._mpi = mpi

    def fill(self, value: float) -> None:
        """Set every number."""
        self._array.fill(value)

    def allreduce(self) -> None:
        """Sum over all ranks."""
        self._mpi.COMM_WORLD.Allreduce(self._mpi.IN_PLACE, self._array, op=self._mpi.SUM)

    def is_filled_with(self, value: float) -> bool:
        """Whether every number is `value`."""
        return bool((self._array == value).all())


class MpiWorld:
    """Of `MPI.COMM_WORLD`, in main memory. Raises WorldError where mpi4py finds no MPI."""

    def __init__(self) -> None:
        self._mpi = _mpi()
        communicator = self._mpi.COMM_WORLD
        self.rank: int = communicator.Get_rank()
        self.facts = WorldFacts(
            library="mpi4py",
            backend=self._mpi.Get_library_version().splitlines()[0].split(",")[0].strip(),
            device="cpu",
            ranks=communicator.Get_size(),
            nodes=len(set(communicator.allgather(self._mpi.Get_processor_name()))),
        )

    def message(self, size: int) -> MpiMessage:
        """An array of `size` bytes."""
        return MpiMessage(size, self._mpi)

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._mpi.COMM_WORLD.Barrier()

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each value, the largest of all ranks."""
        found = np.array(values, dtype=np.float64)
        self._mpi.COMM_WORLD.Allreduce(self._mpi.IN_PLACE, found, op=self._mpi.MAX)
        return [float(value) for value in found]


def _mpi() -> Any:
    """The module `mpi4py.MPI`. Its import starts MPI, and fails where no MPI library is installed."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        raise WorldError(
            f"mpi4py finds no MPI ({reason}): install one (Debian: openmpi-bin) and hvd-elastic[mpi]"
        ) from error
    return MPI
