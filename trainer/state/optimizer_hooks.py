"""Hooks around an optimizer's step: the learning rate follows the world size, and no tensor changes during its copy.

The factor is applied for the duration of the step and undone after it. Schedulers, checkpoints and the script thus see
the script's own learning rate, and after 2 -> 3 -> 1 workers it is exact to the last bit.

Gradients are not part of a commit. They are dropped when training goes back to one, and so is what Horovod and a
gradient scaler remember of the step that was under way.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


class LearningRateScaler:
    """Scales the learning rates of one optimizer during a step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._unscaled: list[Any] = []

    def apply(self, factor: float) -> None:
        """Multiply the learning rate of every parameter group."""
        groups = self._optimizer.param_groups
        self._unscaled = [_value(group["lr"]) for group in groups]
        for group, own in zip(groups, self._unscaled, strict=True):
            _assign(group, own * factor)

    def restore(self) -> None:
        """Undo `apply`. Does nothing if no factor is applied."""
        for group, own in zip(self._optimizer.param_groups, self._unscaled, strict=False):
            _assign(group, own)
        self._unscaled = []


class OptimizerHooks:
    """Hooks on the optimizers of a State."""

    def __init__(
        self,
        optimizers: Iterable[torch.optim.Optimizer],
        *,
        before: Callable[[], float],
        after: Callable[[], None],
    ) -> None:
        """Register the hooks.

        Args:
            optimizers: optimizers, wrapped by Horovod or not.
            before: called once before each step; returns the factor on the learning rate.
            after: called once after each step.
        """
        self._rates = {id(optimizer): LearningRateScaler(optimizer) for optimizer in optimizers}
        self._optimizers = tuple(optimizers)
        self._before, self._after = before, after
        self._depth = 0
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._before_step)
            optimizer.register_step_post_hook(self._after_step)

    def reset_after_failure(self) -> None:
        """Undo what an interrupted step has left: its post-hook was never called."""
        self._depth = 0
        for rate in self._rates.values():
            rate.restore()

    def drop_gradients(self) -> None:
        """Forget every gradient, and the step in which they were being averaged.

        The memory is not set to zero: an operation of the lost world may still write to it.
        """
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
            _forget_averaging(optimizer)

    def holds_gradients(self) -> bool:
        """Whether Horovod has gradients that no step has used. Without its hooks (a world of one) nobody can tell."""
        return any(getattr(optimizer, "_handles", None) for optimizer in self._optimizers)

    def set_backward_passes(self, passes: int) -> None:
        """Make Horovod send a gradient after this many backward passes; the optimizer's step sends what is missing."""
        for optimizer in self._optimizers:
            set_passes = getattr(optimizer, "set_backward_passes_per_step", None)
            if set_passes is not None:
                set_passes(passes)

    def owned_addresses(self) -> frozenset[int]:
        """Return the addresses of the tensors that change only in a step."""
        return frozenset(tensor.data_ptr() for optimizer in self._optimizers for tensor in _owned_by(optimizer))

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:  # Horovod's step calls the step it wraps, and both call the hooks
            return
        factor = self._before()
        if factor != 1.0:
            self._rates[id(optimizer)].apply(factor)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._rates[id(optimizer)].restore()
            self._after()


def _forget_averaging(optimizer: Any) -> None:
    """Make Horovod's optimizer wait for the first backward pass of a step.

    Its own `load_state_dict` leaves the counts of the groups as they are, and that of Adasum leaves everything: then
    the next backward pass averages too early, or `zero_grad()` refuses its service.
    """
    if hasattr(optimizer, "_allreduce_delay"):
        optimizer._handles.clear()
        optimizer._synchronized = False
        for parameter in optimizer._allreduce_delay:
            optimizer._allreduce_delay[parameter] = optimizer.backward_passes_per_step
        for group in getattr(optimizer, "_group_counts", ()):
            optimizer._group_counts[group] = 0


def _owned_by(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, torch.Tensor))


def _value(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate


def _assign(group: dict[str, Any], rate: Any) -> None:
    if isinstance(group["lr"], torch.Tensor):  # a captured or compiled step keeps a reference to this tensor
        group["lr"].copy_(rate)
    else:
        group["lr"] = rate
