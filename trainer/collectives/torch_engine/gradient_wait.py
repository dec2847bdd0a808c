"""How long this process waits for others in DistributedDataParallel, whose waits are in C++.

A backward pass ends with callbacks in the order in which they were queued. Ours is queued as the pass begins, and so
comes before DistributedDataParallel's, which waits for the averages: then this process has computed all that it has to.
A second one, queued by the first, comes after it. A forward pass waits for rank 0's buffers where a model has any.
What is missed, such as a model whose first output is not part of the loss, counts as computing: on all ranks, so that
nobody looks slow for it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives import collective_calls
from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel


_GRADIENTS: Final = "allreduce gradients"
_BUFFERS: Final = "broadcast buffers"


class GradientWait:
    """Tells `calls` when the models of a process wait. One thread trains."""

    def __init__(self, calls: CollectiveCalls = collective_calls.THIS_PROCESS) -> None:
        self._calls = calls
        self._queue: Callable[[Callable[[], None]], None] = _nothing
        """torch's own: calls back at the end of a backward pass."""

    def install(self) -> None:
        """Count what forward passes of all models wait. To be called once."""
        from torch.nn.parallel import DistributedDataParallel

        stock: Callable[..., Any] | None = getattr(DistributedDataParallel, "_sync_buffers", None)
        if stock is None:
            return

        @functools.wraps(stock)
        def sync_buffers(*args: Any, **kwargs: Any) -> Any:
            with self._calls.waiting(_BUFFERS):
                return stock(*args, **kwargs)

        DistributedDataParallel._sync_buffers = sync_buffers  # type: ignore[method-assign]

    def watch(self, model: "DistributedDataParallel") -> None:
        """Count what this model's backward passes wait."""
        from torch.autograd import Variable

        self._queue = Variable._execution_engine.queue_callback
        model.register_forward_hook(self._after_forward)

    def _after_forward(self, model: Any, _: Any, output: Any) -> None:
        if model.require_backward_grad_sync and (tensor := _first_with_gradient(output)) is not None:
            tensor.register_hook(self._backward_begins)  # type: ignore[no-untyped-call]

    def _backward_begins(self, _: "torch.Tensor") -> None:
        self._queue(self._has_computed)

    def _has_computed(self) -> None:
        """Of several models, or several outputs of one, the last beginning and the first end count: all have come."""
        self._calls.wait_begins(_GRADIENTS)
        self._queue(self._calls.wait_ends)


def _nothing(_: Callable[[], None]) -> None:
    """Stand for torch's function until there is a model."""


def _first_with_gradient(output: Any) -> "torch.Tensor | None":
    """Of a tensor, or a collection of such, as models return them."""
    import torch

    if isinstance(output, torch.Tensor):
        return output if output.requires_grad else None
    parts: Iterable[Any] = output.values() if isinstance(output, Mapping) else output
    found = map(_first_with_gradient, parts if isinstance(output, Mapping | tuple | list) else ())
    return next((tensor for tensor in found if tensor is not None), None)


THIS_PROCESS: Final = GradientWait()
