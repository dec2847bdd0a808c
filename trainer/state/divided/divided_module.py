"""The weights of a module that torch's `fully_shard` has divided."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch

from hvd_elastic.trainer.checkpoint.module_names import under_names_of, under_plain_names
from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.sharded_content import SHARE, ShardedContent
from hvd_elastic.trainer.sharding.share_transfer import gather
from hvd_elastic.trainer.sharding.shares import WHOLE
from hvd_elastic.trainer.state.divided.divided_object import REST, DividedObject, share_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_WEIGHT: Final = "weight"
"""Name of the one tensor in each bucket: a parameter."""


class DividedModule(DividedObject):
    """The weights of one module."""

    begins_divided: Final = True
    """Each rank has drawn first weights, and any of them are as good."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.of = module

    def divide_anew(self) -> None:
        """Divide it over the present world."""
        module_division.divide_anew(self.of)

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's share, and what is not divided. The tensors are the module's own."""
        divided = module_division.parts_of(self.of)
        rest = _without(self.of.state_dict(), divided)
        return {**self.content.state_dict(), REST: under_plain_names(rest, self.of)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave, or the plain `state_dict()` of the whole.

        Raises:
            ShardingError: a name is missing, or is of another shape.
        """
        divided = module_division.parts_of(self.of)
        if SHARE in state_dict:
            content = ShardedContent.of(state_dict)
            if self.is_whole(content):  # else this rank has weights of its own, until others are moved to it
                self.take(content)
            rest = state_dict[REST]
        else:
            whole = under_names_of(self.of.state_dict().keys(), state_dict)
            self.place(self._whole(whole, divided))
            rest = _without(whole, divided)
        missing = self.of.load_state_dict(under_names_of(self.of.state_dict().keys(), rest), strict=False).missing_keys
        if lost := set(missing) - divided.keys():
            raise ShardingError(f"fully_shard: the weights to load lack {', '.join(sorted(lost))}")

    def gathered(self, state_dict: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return on rank 0 the plain `state_dict()` of which each rank gives its share. A collective operation."""
        content = gather(ShardedContent.of(state_dict), self.lengths, label="gather.module")
        if content is None:
            return None
        divided, rest = module_division.parts_of(self.of), state_dict[REST]
        numbers = {id(part): number for number, part in enumerate(self.parts())}
        whole: dict[str, Any] = self.of.state_dict()
        plain = dict(zip(whole, under_plain_names(whole, self.of), strict=True))
        for name in whole:
            if name in divided:
                number, shape = numbers[id(divided[name])], divided[name].shape
                whole[name] = content.shards[number][_WEIGHT].view(shape)
            else:
                whole[name] = rest[plain[name]]
        found: Mapping[str, Any] = under_plain_names(whole, self.of)
        return found

    def parts(self) -> "list[DTensor]":
        return list({id(part): part for part in module_division.parts_of(self.of).values()}.values())

    def _read(self) -> ShardedContent:
        parts = self.parts()
        shards = [{_WEIGHT: module_division.flat_part(part)} for part in parts]
        return ShardedContent(share=share_of(parts), shards=shards, numbers=[{} for _ in parts])

    def _write(self, content: ShardedContent) -> None:
        for part, tensors in zip(self.parts(), content.shards, strict=True):
            module_division.flat_part(part).copy_(tensors[_WEIGHT])

    def _whole(self, given: Mapping[str, Any], divided: "Mapping[str, DTensor]") -> ShardedContent:
        """Return the content that the plain state of a whole module gives."""
        if wrong := [name for name, part in divided.items() if getattr(given.get(name), "shape", None) != part.shape]:
            raise ShardingError(
                f"fully_shard: the weights to load lack {', '.join(wrong)}, or have another shape: they are of another "
                "model"
            )
        weights = {id(part): given[name] for name, part in divided.items()}
        shards = [{_WEIGHT: weights[id(part)].detach().to("cpu", copy=True).flatten()} for part in self.parts()]
        return ShardedContent(share=WHOLE, shards=shards, numbers=[{} for _ in shards])


def _without(state: Mapping[str, Any], names: Mapping[str, object]) -> Mapping[str, Any]:
    """Return a `state_dict()` without some names; with the versions of its modules, which are an attribute of it."""
    rest: dict[str, Any] = copy.copy(state)  # type: ignore[arg-type]
    for name in names:
        rest.pop(name, None)
    return rest
