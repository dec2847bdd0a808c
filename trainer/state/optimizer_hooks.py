"""Hooks around an optimizer's step: the learning rate follows the world size, and no tensor changes during its copy.

The factor is applied for the duration of the step and undone after it. Schedulers, checkpoints and the script thus see
the script's own learning rate, and after 2 -> 3 -> 1 workers it is exact to the last bit.

Gradients are not part of a commit. They are dropped when training goes back to one, and so is what Horovod and a
gradient scaler remember of the step that was under way.
"""

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch

from hvd_elastic.trainer.collectives import distributed_optimizer, module_division
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.data.batch_policy import LearningRatePolicy
from hvd_elastic.trainer.data.progress import Progress
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer


class LearningRateFactor:
    """The factor that the job's rule gives, or else the script's."""

    def __init__(self) -> None:
        self._arguments: dict[str, Any] = {}
        self._policy = LearningRatePolicy.choose()

    def choose(self, **arguments: Any) -> None:
        """Take the script's rule: what `LearningRatePolicy.choose` takes, and raises."""
        self._arguments = arguments
        self._policy = LearningRatePolicy.choose(**arguments)

    def at(self, progress: Progress) -> float:
        return self._policy.factor(
            size=progress.size or WORLD.size(),
            start=progress.factor_start,
            steps=progress.optimizer_steps - progress.resized_at,
        )

    def enter_world(self, progress: Progress) -> None:
        """Go on from the present factor to that of another size."""
        # Chosen again: a standby receives the job's environment after its State was made.
        self._policy = LearningRatePolicy.choose(**self._arguments)
        size = WORLD.size()
        if progress.size != size:
            progress.factor_start = self.at(progress) if progress.size else self._policy.target(size)
            progress.resized_at = progress.optimizer_steps
            progress.size = size


class LearningRateScaler:
    """Scales the learning rates of one optimizer during a step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._unscaled: list[Any] = []

    def apply(self, factor: float) -> None:
        groups = self._optimizer.param_groups
        self._unscaled = [_value(group["lr"]) for group in groups]
        for group, own in zip(groups, self._unscaled, strict=True):
            _assign(group, own * factor)

    def restore(self) -> None:
        """Undo `apply`. Does nothing if no factor is applied."""
        for group, own in zip(self._optimizer.param_groups, self._unscaled, strict=False):
            _assign(group, own)
        self._unscaled = []


class HookedStep:
    """The step of one optimizer. It may contain further steps of the same optimizer: only the outermost counts.

    Horovod's step calls the step that it wraps, and both call the hooks. torch calls no hook when a step raises.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, before: Callable[[], float], after: Callable[[], None]
    ) -> None:
        self._rate = LearningRateScaler(optimizer)
        self._before, self._after = before, after
        self._depth = 0
        optimizer.register_step_pre_hook(self._begin)
        optimizer.register_step_post_hook(self._end)
        optimizer.step = self._ended_by_errors(optimizer)  # type: ignore[method-assign]

    def abandon(self, depth: int = 0) -> None:
        """Leave the steps inside that of this depth, which were not completed."""
        self._depth = depth
        if not depth:
            self._rate.restore()

    def _begin(self, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            factor = self._before()
            if factor != 1.0:
                self._rate.apply(factor)

    def _end(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._rate.restore()
            self._after()

    def _ended_by_errors(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        """Return the optimizer's step, which takes the factor off when it raises. A script may catch that and go on."""
        step = optimizer.step

        @functools.wraps(getattr(step, "__func__", step))
        def wrapped(_: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
            depth = self._depth
            try:
                return step(*args, **options)
            except BaseException:
                self.abandon(depth)
                raise

        return MethodType(wrapped, optimizer)  # a method, because a scheduler binds what it finds here


class OptimizerHooks:
    """Hooks on the optimizers of a State."""

    def __init__(self, *, before: Callable[[], float], after: Callable[[], None]) -> None:
        """Hook nothing yet.

        Args:
            before: called once before each step; returns the factor on the learning rate.
            after: called once after each step.
        """
        self._before, self._after = before, after
        self._steps: dict[int, tuple[torch.optim.Optimizer, HookedStep]] = {}
        self._backward_passes: int | None = None
        """What the optimizers were told; None if they were never told."""

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Register the hooks of an optimizer, wrapped by Horovod or not, if it has none."""
        if id(optimizer) not in self._steps:
            distributed_optimizer.follow_parameters(optimizer)
            self._steps[id(optimizer)] = optimizer, HookedStep(optimizer, before=self._before, after=self._after)

    @property
    def _optimizers(self) -> Iterator[torch.optim.Optimizer]:
        return (optimizer for optimizer, _ in self._steps.values())

    def reset_after_failure(self) -> None:
        for _, step in self._steps.values():
            step.abandon()

    def drop_gradients(self) -> None:
        """Forget every gradient, and the step in which they were being averaged.

        The memory is not set to zero: an operation of the lost world may still write to it.
        """
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
            if isinstance(optimizer, ShardedOptimizer):
                optimizer.forget_gradients()
            distributed_optimizer.forget_averaging(optimizer)

    def holds_gradients(self) -> bool:
        """Whether Horovod has gradients that no step has used. Without its hooks (a world of one) nobody can tell."""
        return any(distributed_optimizer.holds_gradients(optimizer) for optimizer in self._optimizers)

    def set_backward_passes(self, passes: int | None) -> None:
        """Make Horovod send a gradient after this many backward passes; the optimizer's step sends what is missing.

        `passes`: None if each step is one, so that nothing need be told unless something else was told before.
        """
        if passes is None and self._backward_passes is None:
            return
        if (passes or 1) != self._backward_passes:
            self._backward_passes = passes or 1
            for optimizer in self._optimizers:
                distributed_optimizer.set_backward_passes(optimizer, self._backward_passes)

    def owned_addresses(self) -> frozenset[int]:
        """Return the addresses of the tensors that change only in a step."""
        return frozenset(tensor.data_ptr() for optimizer in self._optimizers for tensor in _owned_by(optimizer))


def _owned_by(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    owned = [*(each for group in optimizer.param_groups for each in group["params"])]
    owned += [value for state in optimizer.state.values() for value in state.values()]
    # Of what is divided a commit waits for its copy, as of any share.
    return (each for each in owned if isinstance(each, torch.Tensor) and not module_division.is_part(each))


def _value(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate


def _assign(group: dict[str, Any], rate: Any) -> None:
    if isinstance(group["lr"], torch.Tensor):  # a captured or compiled step keeps a reference to this tensor
        group["lr"].copy_(rate)
    else:
        group["lr"] = rate
