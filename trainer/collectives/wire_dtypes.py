"""Tensors of dtypes that Horovod lacks, in all of its operations: bfloat16, complex, and bool where nothing is reduced.

Horovod's torch binding looks a function of its C++ extension up by the operation and the tensor's type, such as
`horovod_torch_allreduce_async_torch_FloatTensor` (horovod 0.28.1, `horovod/torch/mpi_ops.py`, `_check_function`). What
is missing there is added, so that everything comes through it: Horovod's optimizer, its broadcasts, and what is ours.

What is reduced goes as float32, or complex numbers as pairs of real ones, and is rounded once after that: to the same
bits on every rank. What is only moved goes as bytes. Whoever waits for an operation also has its result converted.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives.engine import IS_TORCH

if TYPE_CHECKING:
    import torch

_REDUCED: Final = {"BFloat16Tensor", "ComplexFloatTensor", "ComplexDoubleTensor"}
_MOVED: Final = {*_REDUCED, "BoolTensor"}

_OPERATOR_AT: Final = {"allreduce": 4, "reducescatter": 3}
"""Which argument says how values are reduced (`Average`, `Max`), of the operations that reduce."""

_OUTPUT_AT: Final = {"alltoall": 2}
"""Which argument the output is, where it is not the second one."""

_OPERATIONS: Final = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")

_Begin = Callable[..., int]


def install() -> None:
    """Add the functions to Horovod's extension. A second call does nothing."""
    if IS_TORCH:  # `torch_world` converts itself
        return
    from horovod.torch import mpi_ops

    library = mpi_ops.mpi_lib
    if not getattr(library.horovod_torch_wait_and_clear, "converts", False):
        _WireOperations(library).install()


class _WireOperations:
    """The operations of one process on tensors that Horovod lacks a dtype for."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._stock = {name: getattr(library, name) for name in dir(library) if name.startswith("horovod_torch_")}
        self._results: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        """By handle, what will be received and where it belongs."""

    def install(self) -> None:
        for operation in _OPERATIONS:
            for dtype in _REDUCED if operation in _OPERATOR_AT else _MOVED:
                for device in ("", "cuda_"):
                    self._add(f"horovod_torch_{operation}_async_torch_{device}{dtype}", self._beginning(operation))
                    grouped = f"horovod_torch_grouped_{operation}_async_torch_"
                    if f"{grouped}FloatTensor" in self._stock:
                        self._add(f"{grouped}{device}{dtype}", self._beginning_group(operation))
        for name in self._stock:
            # A group is looked up by its first tensor, and others may be of any dtype.
            if name.startswith("horovod_torch_grouped_"):
                operation = name.removeprefix("horovod_torch_grouped_").partition("_async_")[0]
                setattr(self._library, name, self._beginning_group(operation))
        self._library.horovod_torch_wait_and_clear = self._waiting(self._stock["horovod_torch_wait_and_clear"])
        self._library.horovod_torch_reset = self._resetting(self._stock["horovod_torch_reset"])

    def _add(self, name: str, begin: _Begin) -> None:
        if name not in self._stock:
            setattr(self._library, name, begin)

    def _beginning(self, operation: str) -> _Begin:
        output_at = _OUTPUT_AT.get(operation, 1)

        def begin(*args: Any) -> int:
            sent, received = _on_wire(operation, args[0], args[output_at], args)
            arguments = [sent, *args[1:]]
            arguments[output_at] = received
            handle: int = self._stock_of(operation, sent)(*arguments)
            self._results[handle] = [(received, args[output_at])]
            return handle

        return begin

    def _beginning_group(self, operation: str) -> _Begin:
        def begin(tensors: Any, outputs: Any, *args: Any) -> int:
            pairs = [
                _on_wire(operation, tensor, output, (tensors, outputs, *args))
                for tensor, output in zip(tensors, outputs, strict=True)
            ]
            sent, received = [list(each) for each in zip(*pairs, strict=True)]
            handle: int = self._stock_of(f"grouped_{operation}", sent[0])(sent, received, *args)
            self._results[handle] = [
                (wire, output) for wire, output in zip(received, outputs, strict=True) if wire is not output
            ]
            return handle

        return begin

    def _stock_of(self, operation: str, sent: "torch.Tensor") -> _Begin:
        function: _Begin = self._stock[f"horovod_torch_{operation}_async_{sent.type().replace('.', '_')}"]
        return function

    def _waiting(self, wait: Callable[[int], None]) -> Callable[[int], None]:
        @functools.wraps(wait)
        def waits(handle: int) -> None:
            results = self._results.pop(handle, ())
            wait(handle)
            for received, output in results:
                _deliver(received, output)

        waits.converts = True  # type: ignore[attr-defined]
        return waits

    def _resetting(self, reset: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(reset)
        def resets() -> None:
            self._results.clear()  # handles are counted anew
            reset()

        return resets


def _on_wire(
    operation: str, tensor: "torch.Tensor", output: "torch.Tensor", args: tuple[Any, ...]
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return what is sent for a tensor, and what is received for its output: both as they are if Horovod knows them."""
    reduces = operation in _OPERATOR_AT
    if tensor.type().rpartition(".")[2] not in (_REDUCED if reduces else _MOVED):
        return tensor, output
    if reduces:
        _check_operator(tensor, args[_OPERATOR_AT[operation]])
    sent = _as_numbers(tensor.detach()) if reduces else _as_bytes(tensor.detach())
    if operation == "allreduce":
        return sent, sent
    return sent, _as_bytes(output.detach()) if operation == "broadcast" else sent.new_empty(0)


def _check_operator(tensor: "torch.Tensor", operator: int) -> None:
    from horovod.torch import mpi_ops

    if tensor.is_complex() and operator not in (mpi_ops.Average, mpi_ops.Sum, mpi_ops.Adasum):
        raise ValueError("complex tensors can be averaged and summed (hvd.Average, hvd.Sum), and not reduced otherwise")


def _as_numbers(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a copy that Horovod can reduce, in place."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()).clone() if tensor.is_complex() else tensor.float()


def _as_bytes(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return the tensor's own memory, with one more dimension; a copy where that is conjugated when it is read."""
    import torch

    return tensor.resolve_conj().unsqueeze(-1).view(torch.uint8)


def _deliver(received: "torch.Tensor", output: "torch.Tensor") -> None:
    """Put what was received into its output, which may have no size yet."""
    import torch

    if received.dtype == torch.uint8:
        result = received.view(output.dtype).squeeze(-1)
    else:
        result = torch.view_as_complex(received) if output.is_complex() else received.to(output.dtype)
    if result.shape != output.shape:
        output.set_(result)  # type: ignore[call-overload]
    elif result.data_ptr() != output.data_ptr():
        output.detach().copy_(result)
