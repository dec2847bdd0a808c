"""The world that Horovod forms when this process was started by one of its launchers."""

from collections.abc import Sequence

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError

from hvd_elastic.client.bench.allreduce.allreduce_world import BrokenWorldError, WorldError, WorldFacts
from hvd_elastic.client.bench.allreduce.message_sizes import ELEMENT_BYTES


class HorovodMessage:
    """A tensor, summed in place."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._tensor = torch.zeros(size // ELEMENT_BYTES, dtype=torch.float32, device=device)
        self._name = f"bench.{size}"  # the same each time, so that Horovod's response cache works as in training

    def fill(self, value: float) -> None:
        """Set every number."""
        self._tensor.fill_(value)
        self._wait()

    def allreduce(self) -> None:
        """Sum over all ranks. Raises BrokenWorldError."""
        try:
            hvd.allreduce_(self._tensor, name=self._name, op=hvd.Sum)
        except HorovodInternalError as error:
            raise BrokenWorldError(f"a rank was lost: {error}") from error
        self._wait()

    def is_filled_with(self, value: float) -> bool:
        """Whether every number is `value`."""
        return bool((self._tensor == value).all())

    def _wait(self) -> None:
        """The host runs ahead of a GPU."""
        if self._tensor.is_cuda:
            torch.cuda.synchronize(self._tensor.device)


class HorovodWorld:
    """Of `hvd.init()`. Messages are where `device` says, by default on GPUs if there are any."""

    def __init__(self, device: str | None = None) -> None:
        hvd.init()
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if chosen == "cuda" and not torch.cuda.is_available():
            raise WorldError("--device cuda: torch sees no GPU")
        self._device = torch.device(chosen, hvd.local_rank()) if chosen == "cuda" else torch.device(chosen)
        self.rank: int = hvd.rank()
        self.facts = WorldFacts(
            library="horovod", backend=_backend(chosen), device=chosen, ranks=hvd.size(), nodes=hvd.cross_size()
        )

    def message(self, size: int) -> HorovodMessage:
        """A tensor of `size` bytes."""
        return HorovodMessage(size, self._device)

    def barrier(self) -> None:
        """Return when every rank has called it."""
        hvd.barrier()

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each value, the largest of all ranks."""
        mine = torch.tensor(values, dtype=torch.float64)
        return [float(value) for value in hvd.allreduce(mine, name="bench.largest", op=hvd.Max)]


def _backend(device: str) -> str:
    if device == "cuda" and hvd.nccl_built():
        return "nccl"
    return "mpi" if hvd.mpi_enabled() else "gloo"
