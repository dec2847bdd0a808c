"""What all workers must hold alike: the parameters that an optimizer changes, its state, and its learning rates.

Buffers are left out: those of BatchNorm are a worker's own. So are shares of what is sharded or divided, and an average
of a model, which no optimizer steps and rank 0 alone may keep.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch

from hvd_elastic.trainer.collectives.module_division import is_part
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.state.state_objects import StateObjects
from hvd_elastic.trainer.state.state_tree import is_dense

Key = tuple[str, int, str]
"""Name of the object in the State, number of the parameter in it, and what of it: empty for the parameter itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """The tensors are the objects' own."""

    tensors: Mapping[Key, torch.Tensor]
    rates: Mapping[str, tuple[float, ...]]
    """By optimizer, the learning rate of each group."""

    @classmethod
    def of(cls, objects: StateObjects, rank_local: Collection[str]) -> "Replicated":
        """Look at a State's objects. `rank_local`: names of those that are each worker's own."""
        optimizers = {name: each for name, each in objects.optimizers().items() if name not in rank_local}
        modules = objects.modules()
        own = {id(weight) for name in rank_local if name in modules for weight in modules[name].parameters()}
        if objects.optimizers():
            pairs = (pair for name, each in optimizers.items() for pair in _of_optimizer(name, each))
        else:
            pairs = (pair for name, each in modules.items() for pair in _of_module(name, each))
        rates = {
            name: tuple(float(group["lr"]) for group in each.param_groups if "lr" in group)
            for name, each in optimizers.items()
        }
        compared = ((key, it) for key, it, owner in pairs if id(owner) not in own and not is_part(owner))
        return cls(tensors={key: it for key, it in compared if is_dense(it)}, rates=rates)


def name_of(key: Key, objects: StateObjects) -> str:
    """Return what a person calls a tensor: `model.head.weight`, `exp_avg of model.head.weight in optimizer`.

    By number where this rank lacks what another one has.
    """
    name, number, what = key
    owner = objects.optimizers().get(name)
    parameters = [*_parameters(owner)] if owner is not None else [*objects.modules()[name].parameters()]
    named = {
        id(each): f"{of}.{known}"
        for of, module in objects.modules().items()
        for known, each in module.named_parameters()
    }
    known_here = [named[id(each)] for each in parameters[number : number + 1] if id(each) in named]
    words = known_here[0] if known_here else f"parameter {number} of {name}"
    return f"{what} of {words} in {name}" if what else words


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


_Pair = tuple[Key, torch.Tensor, torch.Tensor]
"""A tensor, and the parameter that it belongs to."""


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer) -> Iterator[_Pair]:
    has_state = not isinstance(optimizer, ShardedOptimizer)
    for number, parameter in enumerate(_parameters(optimizer)):
        yield (name, number, ""), parameter, parameter
        if has_state and parameter in optimizer.state:
            for what, value in sorted(optimizer.state[parameter].items(), key=lambda item: str(item[0])):
                if isinstance(value, torch.Tensor):
                    yield (name, number, str(what)), value, parameter


def _of_module(name: str, module: torch.nn.Module) -> Iterator[_Pair]:
    for number, parameter in enumerate(module.parameters()):
        if parameter.requires_grad:
            yield (name, number, ""), parameter, parameter
