"""What a State holds of its script: objects with a state of their own, and plain values."""

import logging
from collections.abc import Mapping

import torch
from horovod.torch.elastic.sampler import ElasticSampler

from hvd_elastic.trainer.state.broadcast import same_tensors
from hvd_elastic.trainer.state.host_memory import Tree, loaded

logger = logging.getLogger(__name__)


class StateObjects:
    """Attributes of an owner, by name: the script may replace them at any time."""

    def __init__(self, owner: object, given: Mapping[str, object]) -> None:
        self._owner = owner
        self._objects = tuple(name for name, value in given.items() if _is_stateful(value))
        self._values = tuple(name for name, value in given.items() if value is not None and not _is_stateful(value))

    def tree(self) -> dict[str, Tree]:
        """As they are now; tensors are the objects' own."""
        return {
            "objects": {name: getattr(self._owner, name).state_dict() for name in self._objects},
            "values": {name: getattr(self._owner, name) for name in self._values},
        }

    def load(self, tree: Tree, *, present: Tree = None) -> None:
        """Take a tree over. `present`: the tree that was received into; what has arrived in place is not loaded
        again.
        """
        for name in self._objects:
            target, values = getattr(self._owner, name), tree["objects"].get(name)
            if values is None:
                logger.warning("the restored state has no %s: it keeps what the script gave it", name)
            elif isinstance(target, torch.nn.Module):
                if present is None or not same_tensors(present["objects"][name], values):
                    target.load_state_dict(values)
            else:
                target.load_state_dict(loaded(values))
        for name in self._values:
            if name in tree["values"]:
                setattr(self._owner, name, loaded(tree["values"][name]))

    def reset_samplers(self) -> None:
        """Have Horovod's samplers divide what is left over the present world."""
        for name in self._objects:
            sampler = getattr(self._owner, name)
            if isinstance(sampler, ElasticSampler):
                sampler.reset()


def _is_stateful(value: object) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
