"""What training needs of a world: its numbers, and the operations that all its ranks call together.

A collective operation is called by every rank of the world, in the same order and with the same `name`, and waits for
all of them. Whoever calls one is in a world (`is_initialized`).
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

Finish = Callable[[], "torch.Tensor"]
"""Waits for an operation that was begun, and returns its result. To be called once. Raises as the operation."""


class ReduceOp(StrEnum):
    """How the values of all ranks become one, element by element. The value is Horovod's name for it."""

    AVERAGE = "Average"
    SUM = "Sum"
    MAX = "Max"


class UnformedWorldError(ValueError):
    """A member of a world was lost before the world was formed."""


class TrainingWorld(Protocol):
    """A world as one of its ranks sees it.

    Every operation raises HorovodInternalError when a rank is lost meanwhile, or calls it with another shape or dtype:
    `elastic.run` goes back to the last commit then. Outside of a world `rank` and all that depends on it raise
    ValueError.
    """

    def init(self) -> None:
        """Form the world, or return at once if there is one. Raises ValueError if it cannot be formed."""

    def shutdown(self) -> None:
        """Leave the world. Does nothing outside of one."""

    def is_initialized(self) -> bool:
        """Whether this process is in a world."""

    def rank(self) -> int:
        """Return the number of this process, from 0."""

    def size(self) -> int:
        """Return the number of ranks."""

    def local_rank(self) -> int:
        """Return the number of this process among those of its host, from 0."""

    def local_size(self) -> int:
        """Return the number of ranks of this process's host."""

    def allreduce(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> "torch.Tensor":
        """Return a new tensor of the same shape and dtype, the same on every rank."""

    def allreduce_async_(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> Finish:
        """Begin an allreduce in place; the result is `tensor` itself, which must not be used before."""

    def reducescatter_async(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> Finish:
        """Begin an allreduce of which each rank gets a part: the result is this rank's, cut along the first dimension.

        Of the rows that do not divide evenly the lower ranks get one each.
        """

    def allgather(self, tensor: "torch.Tensor", *, name: str) -> "torch.Tensor":
        """Return the tensors of all ranks, concatenated along the first dimension in the order of ranks.

        Ranks may differ in their first dimension, and in no other.
        """

    def allgather_async(self, tensor: "torch.Tensor", *, name: str) -> Finish:
        """Begin an allgather; the result is what `allgather` returns."""

    def alltoall_async(self, tensor: "torch.Tensor", *, splits: "torch.Tensor", name: str) -> Finish:
        """Begin to send each rank a part of `tensor`; the result is what all ranks send this one, in their order.

        `splits`: by rank, the number of rows that it gets (int32, on the host). Their sum is the length of `tensor`.
        """

    def broadcast_async_(self, tensor: "torch.Tensor", root: int, *, name: str) -> Finish:
        """Begin to write the root's tensor into that of each rank, which has its shape and dtype; it is the result."""

    def broadcast_object(self, value: T, *, root: int, name: str) -> T:
        """Return the root's value on every rank. It is pickled; what other ranks give is not used."""

    def allgather_object(self, value: T, *, name: str) -> list[T]:
        """Return the values of all ranks in their order. They are pickled."""

    def is_loss(self, error: Exception) -> bool:
        """Whether an error of the script's own operations, which this protocol does not see, means a lost rank."""
