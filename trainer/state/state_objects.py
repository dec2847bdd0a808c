"""The objects and plain values that a script gives to a State."""

import logging
from collections.abc import Mapping

import torch
from horovod.torch.elastic.sampler import ElasticSampler

from hvd_elastic.trainer.state.broadcast import same_tensors
from hvd_elastic.trainer.state.host_memory import Tree, clone_tree

logger = logging.getLogger(__name__)


class StateObjects:
    """Attributes of an owner, looked up by name on each use: the script may replace them at any time."""

    def __init__(self, owner: object, given: Mapping[str, object]) -> None:
        self._owner = owner
        self._objects = tuple(name for name, value in given.items() if _is_stateful(value))
        self._values = tuple(name for name, value in given.items() if value is not None and not _is_stateful(value))

    def tree(self) -> dict[str, Tree]:
        """Return the present state. Its tensors are the objects' own, not copies."""
        return {
            "objects": {name: getattr(self._owner, name).state_dict() for name in self._objects},
            "values": {name: getattr(self._owner, name) for name in self._values},
        }

    def load(self, tree: Tree, *, received_into: Tree = None) -> None:
        """Load `tree` into the objects and values.

        Args:
            tree: what `tree()` returned, on this worker or another.
            received_into: the tree that a broadcast wrote into. Modules whose tensors it updated in place are skipped.
        """
        for name in self._objects:
            target, values = getattr(self._owner, name), tree["objects"].get(name)
            if values is None:
                logger.warning("the restored state has no %s: the object keeps the state that the script gave it", name)
            elif isinstance(target, torch.nn.Module):
                if received_into is None or not same_tensors(received_into["objects"][name], values):
                    target.load_state_dict(values)
            else:
                target.load_state_dict(clone_tree(values))
        for name in self._values:
            if name in tree["values"]:
                setattr(self._owner, name, clone_tree(tree["values"][name]))

    def drop_gradients(self) -> None:
        """Forget the gradients of all modules, and what gradient scalers know of them."""
        for name in self._objects:
            target = getattr(self._owner, name)
            if isinstance(target, torch.nn.Module):
                target.zero_grad(set_to_none=True)
            elif isinstance(target, torch.amp.GradScaler):
                # Not in its state_dict(). It would take the next gradients for unscaled if these already were.
                target._per_optimizer_states.clear()

    def reset_samplers(self) -> None:
        """Make Horovod's samplers divide the remaining samples over the present world."""
        for name in self._objects:
            sampler = getattr(self._owner, name)
            if isinstance(sampler, ElasticSampler):
                sampler.reset()


def _is_stateful(value: object) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
