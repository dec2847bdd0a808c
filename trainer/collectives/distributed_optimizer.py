"""Horovod's optimizers, as they are seen from outside: `hvd.DistributedOptimizer` makes a class for each that it wraps.

For any other optimizer the answer is no, and nothing is done: over torch.distributed, where DistributedDataParallel
averages, for all of them.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.this_world import TORCH

if TYPE_CHECKING:
    import torch

    from hvd_elastic.trainer.collectives.torch_engine.loss_module import Loss

HOW_TO_AVERAGE: Final = (
    "wrap the model in DistributedDataParallel" if IS_TORCH else "wrap it with hvd.DistributedOptimizer"
)
"""What a script does with a plain optimizer, before it creates the State."""


def average_gradients(
    loss: "Loss", model: "torch.nn.Module", optimizer: "torch.optim.Optimizer"
) -> "tuple[Loss, torch.optim.Optimizer]":
    """Return the loss and the optimizer that a loop takes in their place to step by the mean of all ranks' gradients.

    Horovod averages in the optimizer, whose parameters must be the model's; torch.distributed in the backward pass.
    """
    if IS_TORCH:
        from hvd_elastic.trainer.collectives.torch_engine.loss_module import averaging

        return averaging(loss, model), optimizer
    from horovod.torch import DistributedOptimizer

    return loss, DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@contextlib.contextmanager
def averaged(optimizer: Any) -> Iterator[None]:
    """Have the gradients averaged here, unless the backward pass has done so; a step within does not average again."""
    if not hasattr(optimizer, "skip_synchronize"):
        yield
        return
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        yield


def is_averaged(optimizer: object) -> bool:
    """Whether an optimizer may step by the gradients of all ranks: who averages them is there."""
    if not IS_TORCH:
        return is_wrapped(optimizer)
    groups = getattr(optimizer, "param_groups", ())
    is_divided = module_division.has_parts(weight for group in groups for weight in group["params"])
    return is_divided or TORCH.models.are_there


def is_wrapped(optimizer: object) -> bool:
    """Whether `hvd.DistributedOptimizer` has returned `optimizer`."""
    return any("_allreduce_grad_async" in vars(base) for base in type(optimizer).__mro__)


def script_optimizer(optimizer: "torch.optim.Optimizer") -> "torch.optim.Optimizer":
    """Return the optimizer of the script's that Accelerate or Lightning Fabric has wrapped; any other as it is.

    Their wrappers hand the step on to it, and neither has the hooks of an optimizer.
    """
    libraries = {base.__module__.partition(".")[0] for base in type(optimizer).__mro__}
    if libraries & {"accelerate", "lightning", "lightning_fabric"} and hasattr(optimizer, "optimizer"):
        return cast("torch.optim.Optimizer", optimizer.optimizer)
    return optimizer


def sums_gradients(optimizer: object) -> bool:
    """Whether it adds the workers' gradients up (`op=hvd.Sum`), where others take their mean."""
    if not is_wrapped(optimizer):
        return False
    from horovod.torch import Sum

    return bool(getattr(optimizer, "op", None) == Sum)


def holds_gradients(optimizer: object) -> bool:
    """Whether it has gradients that no step has used. Without its hooks (a world of one) nobody can tell."""
    return bool(getattr(optimizer, "_handles", None))


def set_backward_passes(optimizer: object, passes: int) -> None:
    """Make it send a gradient after this many backward passes; its step sends what is missing."""
    set_passes = getattr(optimizer, "set_backward_passes_per_step", None)
    if set_passes is not None:
        set_passes(passes)


def forget_averaging(optimizer: Any) -> None:
    """Make it wait for the first backward pass of a step.

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


def follow_parameters(optimizer: Any) -> None:
    """Make it average the gradients of parameters that are released, frozen or added after it was made.

    Horovod hooks those alone that require a gradient at that time (`_register_hooks` of horovod 0.28.1,
    `torch/optimizer.py`): released later, each rank would step one by its own gradient; frozen later, it would go on
    to be stepped, by zeros.
    """
    if not is_wrapped(optimizer) or not getattr(optimizer, "_requires_update", None):
        return
    synchronize, hooked = optimizer.synchronize, set(optimizer._requires_update)

    @functools.wraps(synchronize)
    def followed() -> None:
        for number, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                if not parameter.requires_grad:
                    optimizer._requires_update.discard(parameter)
                elif parameter not in optimizer._requires_update:
                    optimizer._requires_update.add(parameter)
                    if parameter not in hooked:
                        hooked.add(parameter)
                        _hook(optimizer, parameter, name=f"hvd_elastic.added.{number}.{index}")
        synchronize()

    optimizer.synchronize = followed


def _hook(optimizer: Any, parameter: Any, *, name: str) -> None:
    """Do what `_register_hooks` does. `name`: of a parameter that it did not know at all."""
    optimizer._parameter_names.setdefault(parameter, name)
    optimizer._allreduce_delay.setdefault(parameter, optimizer.backward_passes_per_step)
    if optimizer._groups is not None:
        optimizer._p_to_group[parameter] = (parameter,)
        optimizer._group_counts[(parameter,)] = 0
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(optimizer._make_hook(parameter))
    optimizer._grad_accs.append(accumulator)
