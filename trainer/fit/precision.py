"""Numerical precision of a `Trainer` step, with gradient scaling and clipping."""

import contextlib
from enum import StrEnum
from typing import Any, Final

import torch

from hvd_elastic.trainer.collectives.distributed_optimizer import averaged


class Precision(StrEnum):
    """Numerical precision of the forward pass."""

    FULL = "full"
    """The dtype of the model's parameters."""
    BF16 = "bf16"
    """torch.autocast with bfloat16."""
    FP16 = "fp16"
    """torch.autocast with float16, and a gradient scaler whose scale is part of the state."""


_DTYPES: Final = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class MixedPrecision:
    """Forward, backward and optimizer step of a model in a given precision."""

    def __init__(self, precision: Precision, *, device: torch.device, clip_norm: float | None) -> None:
        self._dtype = _DTYPES.get(precision)
        self._device = device
        self._clip_norm = clip_norm
        self.scaler = torch.amp.GradScaler(device.type) if precision is Precision.FP16 else None
        """The gradient scaler, which must be part of the state; None unless the precision is FP16."""

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of one batch to the parameters' gradients."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]

    def step(self, model: torch.nn.Module, optimizer: Any) -> None:
        """Average the gradients, unscale them, clip them, and step: in this order, as each needs the one before.

        `optimizer` is what `average_gradients` returned, or a `ShardedOptimizer`.
        """
        if self.scaler is None and self._clip_norm is None:
            optimizer.step()
        else:
            with averaged(optimizer):
                if self.scaler is not None:
                    self.scaler.unscale_(optimizer)
                if self._clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), self._clip_norm)
                self._apply(optimizer)
        optimizer.zero_grad()

    def _apply(self, optimizer: Any) -> None:
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()
