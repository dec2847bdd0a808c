"""What of a State torch's `fully_shard` has divided, and its division over each world."""

import sys
from collections.abc import Iterator, Mapping, Sequence

import torch

from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.state.divided.divided_module import DividedModule
from hvd_elastic.trainer.state.divided.divided_optimizer import DividedOptimizer

Divided = DividedModule | DividedOptimizer


def divided_object(value: object) -> Divided | None:
    """Return how a State keeps a value; None if `fully_shard` has divided nothing of it."""
    if module_division.is_divided(value):
        assert isinstance(value, torch.nn.Module)
        return DividedModule(value)
    if isinstance(value, torch.optim.Optimizer):
        weights = (weight for group in value.param_groups for weight in group["params"])
        return DividedOptimizer(value) if module_division.has_parts(weights) else None
    return None


def divide_anew(divided: Sequence[Divided]) -> None:
    """Divide these over the present world; what each rank had is kept until it is moved. On all ranks.

    Raises:
        ShardingError: an optimizer steps parameters of no module among them.
    """
    modules = [each for each in divided if isinstance(each, DividedModule)]
    known = {id(part) for each in modules for part in each.parts()}
    for each in divided:
        if any(id(part) not in known for part in each.parts()):
            raise ShardingError(
                "an optimizer of the State steps what fully_shard has divided of a module that is not in the State: "
                "give it to State(model=...)"
            )
    for each in divided:
        each.leave_world()
    for module in modules:
        module.divide_anew()
    for each in divided:
        each.enter_world()


def problems(values: Mapping[str, object]) -> Iterator[str]:
    """Say what of a State is divided over the ranks of one world alone: a lost rank would take its part with it."""
    for name, value in values.items():
        if isinstance(value, torch.nn.Module) and _has_parts(value):
            if IS_TORCH:
                yield from (f"state.{name}: {problem}" for problem in module_division.problems(value))
            else:
                yield f"state.{name}: its weights are divided over torch.distributed. Train under `engine: torch`"


def _has_parts(module: torch.nn.Module) -> bool:
    """Without an import of what takes long, and what a script that divides has imported."""
    if module_division.has_parts(module.parameters()) or module_division.is_divided(module):
        return True
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and any(isinstance(each, fsdp.FullyShardedDataParallel) for each in module.modules())
