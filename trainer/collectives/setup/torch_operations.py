"""torch.distributed's functions that a script calls before its training function.

They are replaced once, in the modules that have imported them by name, too. They pass every call on but for that time:
then an operation is over when it returns, with `async_op=True` too.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives.setup.setup_calls import SetupCalls

if TYPE_CHECKING:
    import torch

_ONE: Final = {
    "broadcast": "tensor",
    "all_reduce": "tensor",
    "all_gather_into_tensor": "output_tensor",
    "all_gather_single": "output_tensor",
}
"""Operations that write one tensor, and which of their arguments that is."""

_TENSORS: Final = {"all_gather": "tensor_list", "all_reduce_coalesced": "tensors"}
"""Those that write a list of tensors."""

_OBJECTS: Final = {"broadcast_object_list": "object_list", "all_gather_object": "object_list"}
"""Those that fill a list of objects."""

_BARRIERS: Final = ("barrier", "monitored_barrier")

_UNLIKE: Final = (
    *("reduce", "gather", "gather_object", "gather_single", "gather_into_tensor", "scatter", "scatter_object_list"),
    *("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "all_to_all", "all_to_all_single"),
    *("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"),
)
"""Those that give each rank something else."""


class _Done:
    """In place of torch's `Work`: an operation that is over."""

    def wait(self, *_: object, **__: object) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _Operations:
    """Those of one process."""

    def __init__(self) -> None:
        self._calls: SetupCalls | None = None
        self._is_installed = False

    def install(self) -> None:
        """Replace the functions. A second call does nothing."""
        if self._is_installed:
            return
        from torch import distributed

        self._is_installed = True
        replaced: dict[int, Callable[..., Any]] = {}
        for name in (*_ONE, *_TENSORS, *_OBJECTS, *_BARRIERS, *_UNLIKE):
            stock = getattr(distributed.distributed_c10d, name, None)
            if stock is not None:  # some are of the newest torch alone
                replaced[id(stock)] = self._asking(name, stock)
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for name, value in list(names.items()):
                if id(value) in replaced:
                    names[name] = replaced[id(value)]

    def ask(self, calls: SetupCalls | None) -> None:
        """Have the functions ask `calls`; None: pass each call on."""
        self._calls = calls

    def _asking(self, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(stock)

        @functools.wraps(stock)
        def operation(*args: Any, **kwargs: Any) -> Any:
            calls = self._calls
            if calls is None or calls.is_within:
                return stock(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            if _is_of_some_ranks(given.get("group")):
                return stock(*args, **kwargs)
            if name in _UNLIKE:
                calls.refuse(
                    f"torch.distributed.{name} before the training function: a process that joins later cannot get it"
                )
            if calls.joins:
                _answer(calls, name, given)
            else:
                _keep(calls, name, given, lambda: stock(*args, **kwargs))
            return _Done() if given.get("async_op") else None

        return operation


def replace_functions(calls: SetupCalls) -> Callable[[], None]:
    """Have them ask `calls`, until what is returned is called."""
    THIS_PROCESS.install()
    THIS_PROCESS.ask(calls)
    return lambda: THIS_PROCESS.ask(None)


def _keep(calls: SetupCalls, name: str, given: dict[str, Any], ask: Callable[[], Any]) -> None:
    """Ask the others, and keep what has come."""
    from torch import distributed

    with calls.within():
        work = ask()
        if work is not None:
            work.wait()
    if name in _BARRIERS:
        return
    number = calls.begun(name, size=distributed.get_world_size())
    if name == "broadcast":
        calls.keep_broadcast(number, given["tensor"])
    elif name in _OBJECTS:
        calls.keep_object(number, given[_OBJECTS[name]])
    else:
        calls.keep(number, _outputs(name, given))


def _answer(calls: SetupCalls, name: str, given: dict[str, Any]) -> None:
    """Write what has come in the first world, which may have had another size."""
    if name in _BARRIERS:
        return
    if name in _OBJECTS:
        given[_OBJECTS[name]][:] = calls.answer_object(name)
        return
    values = calls.answer(name)
    outputs = _outputs(name, given)
    if name == "broadcast" and not values:  # the State brings it
        return
    if name == "all_gather":
        given["tensor_list"][:] = [value.to(_device(outputs), copy=True) for value in values]
        return
    if name.startswith("all_gather_"):
        outputs[0].resize_(values[0].shape)
    calls.write(outputs, values, f"torch.distributed.{name}")


def _outputs(name: str, given: dict[str, Any]) -> "list[torch.Tensor]":
    return [given[_ONE[name]]] if name in _ONE else list(given[_TENSORS[name]])


def _device(outputs: "list[torch.Tensor]") -> "torch.device | str":
    return outputs[0].device if outputs else "cpu"


def _is_of_some_ranks(group: object) -> bool:
    from torch import distributed

    return group is not None and group is not distributed.group.WORLD


THIS_PROCESS: Final = _Operations()
"""torch has one module of each name."""
