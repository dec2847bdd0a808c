"""What a step of `Trainer` computes in: precision, the scaling of gradients that goes with it, and clipping."""

import contextlib
from enum import StrEnum
from typing import Any, Final

import torch


class Precision(StrEnum):
    """What the forward pass computes in."""

    FULL = "full"
    BF16 = "bf16"
    FP16 = "fp16"
    """With a gradient scaler, whose scale is part of the state."""


_DTYPES: Final = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class MixedPrecision:
    """Of one model and the optimizer that `hvd.DistributedOptimizer` returned."""

    def __init__(self, precision: Precision, *, device: torch.device, clip_norm: float | None) -> None:
        self._dtype = _DTYPES.get(precision)
        self._device = device
        self._clip_norm = clip_norm
        self.scaler = torch.amp.GradScaler(device.type) if precision is Precision.FP16 else None
        """Part of the state, where there is one."""

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """Around a forward pass."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of one batch."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]

    def step(self, model: torch.nn.Module, optimizer: Any) -> None:
        """Average, unscale, clip, step: each needs what comes before it."""
        if self.scaler is None and self._clip_norm is None:
            optimizer.step()
        else:
            optimizer.synchronize()
            if self.scaler is not None:
                self.scaler.unscale_(optimizer)
            if self._clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), self._clip_norm)
            with optimizer.skip_synchronize():
                self._apply(optimizer)
        optimizer.zero_grad()

    def _apply(self, optimizer: Any) -> None:
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()
