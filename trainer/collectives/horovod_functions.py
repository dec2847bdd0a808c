"""A world by Horovod's functions.

Each call looks its function up in `horovod.torch`: some are replaced there, by us (`replaced_functions`) and by others.
Importing this module imports neither Horovod nor torch.
"""

from typing import TYPE_CHECKING, Any, Final, TypeVar

from hvd_elastic.trainer.collectives.training_world import Finish, ReduceOp, UnformedWorldError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_INIT_FAILED: Final = "Horovod initialization failed"
"""How the ValueError begins (`horovod/common/basics.py`)."""


class HorovodTrainingWorld:
    """Horovod's global process set: a `TrainingWorld`."""

    def init(self) -> None:
        _horovod().init()

    def shutdown(self) -> None:
        _horovod().shutdown()

    def is_initialized(self) -> bool:
        return bool(_horovod().is_initialized())

    def rank(self) -> int:
        return int(_horovod().rank())

    def size(self) -> int:
        return int(_horovod().size())

    def local_rank(self) -> int:
        return int(_horovod().local_rank())

    def local_size(self) -> int:
        return int(_horovod().local_size())

    def allreduce(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> "torch.Tensor":
        reduced: torch.Tensor = _horovod().allreduce(tensor, op=_operator(op), name=name)
        return reduced

    def allreduce_async_(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> Finish:
        return _finish(_horovod().allreduce_async_(tensor, op=_operator(op), name=name))

    def reducescatter_async(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> Finish:
        return _finish(_horovod().reducescatter_async(tensor, op=_operator(op), name=name))

    def allgather(self, tensor: "torch.Tensor", *, name: str) -> "torch.Tensor":
        gathered: torch.Tensor = _horovod().allgather(tensor, name=name)
        return gathered

    def allgather_async(self, tensor: "torch.Tensor", *, name: str) -> Finish:
        return _finish(_horovod().allgather_async(tensor, name=name))

    def alltoall_async(self, tensor: "torch.Tensor", *, splits: "torch.Tensor", name: str) -> Finish:
        handle = _horovod().alltoall_async(tensor, splits, name=name)

        def finish() -> "torch.Tensor":
            received: torch.Tensor
            received, _ = _horovod().synchronize(handle)
            return received

        return finish

    def broadcast_async_(self, tensor: "torch.Tensor", root: int, *, name: str) -> Finish:
        return _finish(_horovod().broadcast_async_(tensor, root, name=name))

    def broadcast_object(self, value: T, *, root: int, name: str) -> T:
        received: T = _horovod().broadcast_object(value, root_rank=root, name=name)
        return received

    def allgather_object(self, value: T, *, name: str) -> list[T]:
        gathered: list[T] = _horovod().allgather_object(value, name=name)
        return gathered

    def is_loss(self, _error: Exception) -> bool:
        return False  # Horovod says it by its own exception, in every operation


def is_init_failure(error: ValueError) -> bool:
    """Whether `init` has raised it because a member of the world was lost before the world was formed."""
    return isinstance(error, UnformedWorldError) or str(error).startswith(_INIT_FAILED)


def _horovod() -> Any:
    import horovod.torch as hvd

    return hvd


def _operator(op: ReduceOp) -> Any:
    return getattr(_horovod(), op.value)


def _finish(handle: Any) -> Finish:
    return lambda: _synchronize(handle)


def _synchronize(handle: Any) -> Any:
    return _horovod().synchronize(handle)
