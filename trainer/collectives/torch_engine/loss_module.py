"""A loss whose backward passes average the gradients of a model: what a loop of ours needs over torch.distributed.

DistributedDataParallel wraps what is called, and calls only its `forward`. So it gets the loss in place of the model: a
loss may call the model several times, or parts of it, as it may without any wrapping.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hvd_elastic.trainer.collectives.torch_engine import data_parallel

Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
"""Takes the model, as it is called, and a batch."""


class _LossModule(torch.nn.Module):
    def __init__(self, loss: Loss, model: torch.nn.Module) -> None:
        super().__init__()
        self.loss, self.model = loss, model
        self.renew: Callable[[], None]
        """Has gradients averaged of all parameters that require one now."""
        self._known = list(model.parameters())
        self._required = self._requires()

    def forward(self, called: torch.nn.Module, batch: Any) -> torch.Tensor:
        loss = self.loss(called, batch)
        if (now := self._requires()) != self._required:
            self._required = now
            self.renew()
        return loss

    def _requires(self) -> list[bool]:
        return [each.requires_grad for each in self._known]


def averaging(loss: Loss, model: torch.nn.Module) -> Loss:
    """Return `loss` for the same arguments; its backward pass leaves the mean of all ranks' gradients in the model.

    Every rank calls it, and its backward pass, equally often. Ranks may use other parameters of the model than others,
    and each step others: hence `find_unused_parameters`, of which torch says once that a model did not need it. Buffers
    stay each rank's own, as they are over Horovod.
    """
    # torch 2.15 has another name for it, and warns of the old one.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {buffers: False, "find_unused_parameters": True}
    module = _LossModule(loss, model)
    averaged = DistributedDataParallel(module, **options)
    # Called in the middle of a forward pass, at the end of which the reducer that is there then prepares the backward.
    module.renew = lambda: data_parallel.renew_reducer(averaged)
    return averaged
