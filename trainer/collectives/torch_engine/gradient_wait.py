"""How long this process waits for others in DistributedDataParallel, whose waits are in C++.

A backward pass ends with callbacks in the order in which they were queued. Ours is queued as the pass begins, and so
comes before DistributedDataParallel's, which waits for the averages: then this process has computed all that it has to.
A second one, queued by the first, comes after it. A forward pass waits for rank 0's buffers where a model has any.
What is missed, such as a model whose first output is not part of the loss, counts as computing: on all ranks, so that
nobody looks slow for it.
"""

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives.collective_calls import WAITED, WaitedTime

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel


class GradientWait:
    """Adds to `waited` what the models of a process wait. One thread trains."""

    def __init__(self, waited: WaitedTime = WAITED, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._waited, self._clock = waited, clock
        self._computed: float | None = None
        """When the present backward pass had computed everything; None: its wait is counted, or there was none yet."""
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
            began = self._clock()
            try:
                return stock(*args, **kwargs)
            finally:
                self._waited.seconds += self._clock() - began

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
        self._computed = self._clock()
        self._queue(self._has_averaged)

    def _has_averaged(self) -> None:
        """Of several models, or several outputs of one, the first call counts: all averages have come by then."""
        if self._computed is not None:
            self._waited.seconds += self._clock() - self._computed
            self._computed = None


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
