"""What happens around an optimizer's step: the rate follows the world size, and nothing is changed while it is copied.

The factor is put on for the length of the step and taken off after it. So schedulers, checkpoints and the script work
with the rate they know, and after 2 -> 3 -> 1 workers it is exact to the last bit.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


class ScaledRate:
    """The rates of one optimizer while it steps."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._own: list[Any] = []

    def put_on(self, factor: float) -> None:
        """Multiply every group's rate."""
        groups = self._optimizer.param_groups
        self._own = [_value(group["lr"]) for group in groups]
        for group, own in zip(groups, self._own, strict=True):
            _assign(group, own * factor)

    def take_off(self) -> None:
        """Give every group its own rate back; does nothing where none was put on."""
        for group, own in zip(self._optimizer.param_groups, self._own, strict=False):
            _assign(group, own)
        self._own = []


class OptimizerHooks:
    """Hooks on a state's optimizers."""

    def __init__(
        self,
        optimizers: Iterable[torch.optim.Optimizer],
        *,
        before: Callable[[], float],
        after: Callable[[], None],
    ) -> None:
        """`before` gives the factor on the learning rate; both are called once a step, whatever wraps the optimizer."""
        self._rates = {id(optimizer): ScaledRate(optimizer) for optimizer in optimizers}
        self._optimizers = tuple(optimizers)
        self._before, self._after = before, after
        self._depth = 0
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._enter)
            optimizer.register_step_post_hook(self._leave)

    def abandon(self) -> None:
        """A failure interrupted a step, which never reached its end."""
        self._depth = 0
        for rate in self._rates.values():
            rate.take_off()

    def expect_passes(self, passes: int) -> None:
        """Horovod sends a gradient after so many backward passes; the optimizer's step sends what is missing."""
        for optimizer in self._optimizers:
            set_passes = getattr(optimizer, "set_backward_passes_per_step", None)
            if set_passes is not None:
                set_passes(passes)

    def owned(self) -> frozenset[int]:
        """Addresses of the tensors that only a step changes."""
        return frozenset(tensor.data_ptr() for optimizer in self._optimizers for tensor in _owned_by(optimizer))

    def _enter(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:  # Horovod's step calls the one it wraps, and both call the hooks
            return
        factor = self._before()
        if factor != 1.0:
            self._rates[id(optimizer)].put_on(factor)

    def _leave(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._rates[id(optimizer)].take_off()
            self._after()


def _owned_by(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, torch.Tensor))


def _value(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate


def _assign(group: dict[str, Any], rate: Any) -> None:
    if isinstance(group["lr"], torch.Tensor):  # a captured or compiled step holds on to this very tensor
        group["lr"].copy_(rate)
    else:
        group["lr"] = rate
