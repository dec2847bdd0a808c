"""The objects and plain values that a script gives to a State."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.checkpoint.module_names import under_names_of, under_plain_names
from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.collectives.horovod_classes import ElasticSampler
from hvd_elastic.trainer.sharding.sharded_content import ShardedObject
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.state.divided.division import Divided, divide_anew, divided_object
from hvd_elastic.trainer.state.state_tree import PLAIN_TENSOR, Path, TensorKind, Tree, clone, leaves, rebuild

logger = logging.getLogger(__name__)


class StateError(HvdElasticError):
    """A State is used in a way that cannot work; the message names the mistake and the way out."""

    exit_code = Exit.SCRIPT_MISTAKE


class StateObjects:
    """Attributes of an owner, looked up by name on each use: the script may replace them at any time.

    What an attribute is now decides how it is saved: by its `state_dict()`, or as a plain value.
    """

    def __init__(self, owner: object, names: Iterable[str], *, optional: Iterable[str] = ()) -> None:
        """Look at nothing yet.

        Args:
            owner: has the attributes.
            names: names of the attributes.
            optional: those of them that are left out while they are None.
        """
        self._owner = owner
        self._names = tuple(names)
        self._optional = frozenset(optional)
        self._committed: dict[str, Any] = {}
        self._divided: dict[str, Divided] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def tree(self) -> dict[str, Tree]:
        """Return the present state. Its tensors are the objects' own, not copies."""
        present = dict(self._present())
        self._committed = {name: value for name, value in present.items() if _is_stateful(value)}
        return {
            "objects": {name: _state_of(self._form(name, value)) for name, value in self._committed.items()},
            "values": {name: value for name, value in present.items() if name not in self._committed},
        }

    def own_tensors(self, tree: Tree) -> dict[Path, torch.Tensor]:
        """Return the tensors of a `tree()` in which its modules and optimizers keep their state, by path.

        Others are copies, which a `state_dict()` may return: writing to these has no effect.
        """
        found: dict[Path, torch.Tensor] = {}
        for name, values in tree["objects"].items():
            memory = {_storage(tensor) for tensor in _kept_by(getattr(self._owner, name)) if tensor.numel()}
            named = leaves(values, path=("objects", name))
            found.update((path, tensor) for path, tensor in named if _storage(tensor) in memory)
        return found

    def load(self, committed: Tree, *, kinds: Mapping[Path, TensorKind]) -> None:
        """Go back to a commit of this process, which stays as it is."""
        self._load_objects(committed["objects"])
        for name, value in committed["values"].items():
            setattr(self._owner, name, _on_device(value, kinds, ("values", name)))

    def load_stored(self, stored: Tree) -> None:
        """Load a durable checkpoint, which an earlier version of the script may have written.

        What the script does not have any more is left out. What it has in addition stays as it is.
        """
        present = dict(self._present())
        objects = {name: values for name, values in stored["objects"].items() if name in present}
        for name, value in present.items():
            if _is_stateful(value) and name not in objects:
                logger.warning("the restored state has no %s: the object keeps the state that the script gave it", name)
        self._load_objects(objects)
        for name, value in stored["values"].items():
            if name in self and not _is_stateful(getattr(self._owner, name)):
                setattr(self._owner, name, clone(value))

    def load_weights(self, name: str, weights: Mapping[str, Any]) -> None:
        """Load weights of a module that fit it; all of them, if it is divided."""
        form = self._form(name, self._target(name))
        if isinstance(form, torch.nn.Module):
            form.load_state_dict(weights, strict=False)
        else:
            form.load_state_dict(weights)

    def adopt(self, received: Tree) -> None:
        """Load what another worker has sent. The tensors belong to the objects from now on."""
        for name, values in received["objects"].items():
            _load(self._form(name, self._target(name)), values)
        for name, value in received["values"].items():
            setattr(self._owner, name, value)

    def modules(self) -> dict[str, torch.nn.Module]:
        return {name: value for name, value in self._present() if isinstance(value, torch.nn.Module)}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: value for name, value in self._present() if isinstance(value, torch.optim.Optimizer)}

    def sharded(self) -> dict[str, ShardedObject]:
        """Return by name what of the state each rank has a share of."""
        forms = {name: self._form(name, value) for name, value in self._present()}
        return {name: form for name, form in forms.items() if isinstance(form, ShardedOptimizer | Divided)}

    def divided(self) -> dict[str, Divided]:
        """Return those of `sharded` that torch's `fully_shard` has divided."""
        return {name: each for name, each in self.sharded().items() if isinstance(each, Divided)}

    def divide_anew(self) -> None:
        """Divide over the present world what torch had divided over another one. On all ranks; nothing is sent.

        Raises:
            ShardingError: an optimizer steps parameters of a divided module that is not in the state.
        """
        if divided := self.divided():
            divide_anew([*divided.values()])

    def drop_gradients(self) -> None:
        """Forget the gradients of all modules, and what gradient scalers know of them."""
        for _, target in self._present():
            if isinstance(target, torch.nn.Module):
                target.zero_grad(set_to_none=True)
            elif isinstance(target, torch.amp.GradScaler):
                # Not in its state_dict(). It would take the next gradients for unscaled if these already were.
                target._per_optimizer_states.clear()

    def reset_samplers(self) -> None:
        """Make Horovod's samplers divide the remaining samples over the present world."""
        for _, sampler in self._present():
            if isinstance(sampler, ElasticSampler):
                sampler.reset()

    def _present(self) -> Iterator[tuple[str, Any]]:
        for name in self._names:
            value = getattr(self._owner, name)
            if value is not None or name not in self._optional:
                yield name, value

    def _load_objects(self, objects: Mapping[str, Tree]) -> None:
        for name, values in objects.items():
            target = self._form(name, self._target(name))
            # A module copies what it loads, and so does what is sharded. Others keep the tensors, and change them.
            copies = isinstance(target, torch.nn.Module | ShardedOptimizer | Divided)
            _load(target, values if copies else clone(values))

    def _form(self, name: str, value: Any) -> Any:
        """Return how an object is kept: the object itself, unless torch has divided it."""
        known = self._divided.get(name)
        if known is not None and known.of is value:
            return known
        form = divided_object(value)
        if form is None:
            return value
        self._divided[name] = form
        return form

    def _target(self, name: str) -> Any:
        """Return the object of this name. Since the commit the script may have put a plain value in its place."""
        target = getattr(self._owner, name, None)
        if not _is_stateful(target):
            target = self._committed.get(name)
            if target is None:
                raise StateError(
                    f"state.{name} must be loaded with load_state_dict(), but it is no object yet. Create it before "
                    "elastic.run, on every worker"
                )
            setattr(self._owner, name, target)
        return target


def _state_of(value: Any) -> Tree:
    """Its `state_dict()`; of a module under plain names, whatever wraps it."""
    state = value.state_dict()
    return under_plain_names(state, value) if isinstance(value, torch.nn.Module) else state


def _load(target: Any, state: Tree) -> None:
    """Load what `_state_of` gave, here or in another version of the script."""
    if isinstance(target, torch.nn.Module):
        state = under_names_of(target.state_dict().keys(), state)
    target.load_state_dict(state)


def _is_stateful(value: object) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _kept_by(target: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of an object, without those of which each rank has a part."""
    if isinstance(target, torch.nn.Module):
        yield from (weight for weight in target.parameters() if not module_division.is_part(weight))
        yield from target.buffers()
    elif isinstance(target, torch.optim.Optimizer):
        kept = (value for values in target.state.values() for value in values.values())
        yield from (each for each in kept if isinstance(each, torch.Tensor) and not module_division.is_part(each))


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _on_device(value: Tree, kinds: Mapping[Path, TensorKind], path: Path) -> Tree:
    """Copy a value out of host memory, each tensor to where it was."""
    return rebuild(value, lambda at, tensor: kinds.get(at, PLAIN_TENSOR).cast(tensor.clone()), path=path)
