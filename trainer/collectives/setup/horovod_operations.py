"""Horovod's functions that a script calls before its training function, replaced for that time."""

import functools
import inspect
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives.collective_calls import NAMED
from hvd_elastic.trainer.collectives.setup.setup_calls import SetupCalls

if TYPE_CHECKING:
    import torch

_UNLIKE: Final = frozenset({"alltoall", "reducescatter", "grouped_reducescatter"})
"""Operations that return other values on each rank."""


def replace_functions(calls: SetupCalls) -> Callable[[], None]:
    """Have them ask `calls`, until what is returned is called."""
    from horovod.torch import functions, mpi_ops

    library = mpi_ops.mpi_lib
    operations = _Operations(calls, mpi_ops._handle_map, mpi_ops.size)
    replaced: list[tuple[Any, str, Any]] = [
        (library, "horovod_torch_wait_and_clear", operations.waiting(library.horovod_torch_wait_and_clear)),
        (library, "horovod_torch_poll", operations.polling(library.horovod_torch_poll)),
        (library, "horovod_torch_barrier", operations.barrier(library.horovod_torch_barrier)),
        (functions, "broadcast_async_", operations.parameters(functions.broadcast_async_)),
        *((mpi_ops, name, operations.named(getattr(mpi_ops, name), kind)) for name, kind in NAMED.items()),
    ]
    if calls.joins:
        # `broadcast_object` and `allgather_object` ask for them: the root is another, and so many have given.
        replaced += [(functions, "rank", lambda: -1), (functions, "size", lambda: calls.size_of_last)]
    stock = [(module, name, getattr(module, name)) for module, name, _ in replaced]

    def put_back() -> None:
        for module, name, function in stock:
            setattr(module, name, function)

    for module, name, function in replaced:
        setattr(module, name, function)
    return put_back


class _Operations:
    """What stands in place of Horovod's functions, which begin operations and return handles."""

    def __init__(self, calls: SetupCalls, handles: MutableMapping[int, Any], size: Callable[[], int]) -> None:
        self._calls, self._handles, self._size = calls, handles, size
        self._waited_for: dict[int, int] = {}
        """Numbers of results by handle."""
        self._handle = 0
        """The last that was made up. Horovod's own are not negative."""

    def named(self, begin: Callable[..., int], kind: str) -> Callable[..., int]:
        """In place of `begin`, which begins an operation of this kind."""
        signature = inspect.signature(begin)

        @functools.wraps(begin)
        def begins(*args: Any, **kwargs: Any) -> int:
            given = signature.bind(*args, **kwargs).arguments
            if given["process_set"].process_set_id or self._calls.is_within:
                return begin(*args, **kwargs)
            if kind in _UNLIKE:
                self._calls.refuse(f"hvd.{kind} before the training function: a process that joins later cannot get it")
            outputs = given["outputs"] if "outputs" in given else (given["output"],)
            name = given["name"] or ""
            if self._calls.joins:
                self._write(outputs, self._calls.answer(kind, name), f"{kind} {name}".rstrip())
                return self._made_up(tuple(outputs) if "outputs" in given else outputs[0])
            handle = begin(*args, **kwargs)
            self._waited_for[handle] = self._calls.begun(kind, name, size=self._size())
            return handle

        return begins

    def waiting(self, wait: Callable[[int], None]) -> Callable[[int], None]:
        """In place of `wait`, which waits for the operation with a handle."""

        @functools.wraps(wait)
        def waits(handle: int) -> None:
            if handle >= 0:
                wait(handle)
            if handle in self._waited_for:
                output = self._handles[handle][-1]
                self._calls.keep(self._waited_for.pop(handle), output if isinstance(output, tuple) else (output,))

        return waits

    def polling(self, poll: Callable[[int], int]) -> Callable[[int], int]:
        """In place of `poll`, which says whether the operation with a handle is done."""
        return lambda handle: 1 if handle < 0 else poll(handle)

    def barrier(self, begin: Callable[[int], int]) -> Callable[[int], int]:
        """In place of `begin`, which begins a barrier of a process set."""
        return lambda process_set: begin(process_set) if process_set or not self._calls.joins else self._made_up(None)

    def parameters(self, begin: Callable[..., int]) -> Callable[..., int]:
        """In place of `begin`, with which `broadcast_parameters` begins to broadcast one tensor."""

        @functools.wraps(begin)
        def begins(tensor: "torch.Tensor", root_rank: int, name: str | None = None) -> int:
            self._calls.parameter(tensor)
            if self._calls.joins:
                return self._made_up(tensor)
            handle = begin(tensor, root_rank, name)  # which is `named`
            self._calls.forget(self._waited_for.pop(handle))
            return handle

        return begins

    def _write(self, outputs: "Sequence[torch.Tensor]", values: "Sequence[torch.Tensor]", words: str) -> None:
        if words.startswith(("allgather", "grouped_allgather")):
            for output, value in zip(outputs, values, strict=False):
                output.resize_(value.shape)
        self._calls.write(outputs, values, words)

    def _made_up(self, output: object) -> int:
        """Return a handle for an operation that is done, with its output."""
        self._handle -= 1
        self._handles[self._handle] = (None, output)
        return self._handle
