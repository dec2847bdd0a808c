"""The state of an optimizer for parameters that torch's `fully_shard` has divided."""

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.sharded_content import SHARE, ShardedContent
from hvd_elastic.trainer.sharding.share_optimizer import placed_number
from hvd_elastic.trainer.sharding.share_transfer import gather
from hvd_elastic.trainer.sharding.shares import WHOLE
from hvd_elastic.trainer.state.divided.divided_object import REST, DividedObject, copied, share_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


class DividedOptimizer(DividedObject):
    """The state of an optimizer for parameters that are divided."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.of = optimizer

    @property
    def begins_divided(self) -> bool:
        """Whether no step was taken: a rank knows its own share of one alone."""
        return self.content.is_empty

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's share, and what is not divided. The tensors are the optimizer's own."""
        plain = self.of.state_dict()
        divided = {number for number, weight in enumerate(self._weights()) if module_division.is_part(weight)}
        rest = {number: values for number, values in plain["state"].items() if number not in divided}
        return {**self.content.state_dict(), REST: rest, "param_groups": plain["param_groups"]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave, or the plain `state_dict()` of the whole."""
        groups = copy.deepcopy(state_dict["param_groups"])
        is_share = SHARE in state_dict
        if is_share:
            content, rest = ShardedContent.of(state_dict), state_dict[REST]
        else:
            content, rest = self._whole(state_dict["state"])
        plain = {number: {name: copied(value) for name, value in values.items()} for number, values in rest.items()}
        self.of.load_state_dict({"state": plain, "param_groups": groups})
        if content.is_empty:
            content = ShardedContent(share=share_of(self.parts()), shards=content.shards, numbers=content.numbers)
        (self.take if is_share else self.place)(content)

    def gathered(self, state_dict: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return on rank 0 the plain `state_dict()` of which each rank gives its share. A collective operation."""
        content = gather(ShardedContent.of(state_dict), self.lengths, label="gather.optimizer")
        if content is None:
            return None
        state = dict(state_dict[REST])
        for number, weight, tensors, values in self._by_weight(content):
            if tensors or values:
                state[number] = {name: tensor.view(weight.shape) for name, tensor in tensors.items()} | {
                    name: copied(value) for name, value in values.items()
                }
        return {"state": dict(sorted(state.items())), "param_groups": state_dict["param_groups"]}

    def leave_world(self) -> None:
        super().leave_world()
        for part in self.parts():
            self.of.state.pop(part, None)

    def _weights(self) -> list[torch.Tensor]:
        return [weight for group in self.of.param_groups for weight in group["params"]]

    def parts(self) -> "list[DTensor]":
        return [weight for weight in self._weights() if module_division.is_part(weight)]

    def _by_weight(
        self, content: ShardedContent
    ) -> "Iterator[tuple[int, DTensor, Mapping[str, torch.Tensor], Mapping[str, Any]]]":
        """Yield each divided parameter with its number, and what a content has for it."""
        numbered = [(number, each) for number, each in enumerate(self._weights()) if module_division.is_part(each)]
        for (number, part), tensors, values in zip(numbered, content.shards, content.numbers, strict=True):
            yield number, part, tensors, values

    def _read(self) -> ShardedContent:
        parts = self.parts()
        states = [self.of.state.get(part, {}) for part in parts]
        for part, state in zip(parts, states, strict=True):
            _check_state(part, state)
        shards = [
            {name: module_division.flat_part(value) for name, value in state.items() if module_division.is_part(value)}
            for state in states
        ]
        numbers = [
            {name: value for name, value in state.items() if not module_division.is_part(value)} for state in states
        ]
        return ShardedContent(share=share_of(parts), shards=shards, numbers=numbers)

    def _write(self, content: ShardedContent) -> None:
        groups = [group for group in self.of.param_groups for _ in group["params"]]
        for number, part, tensors, values in self._by_weight(content):
            state: dict[str, Any] = {}
            for name, flat in tensors.items():
                state[name] = torch.empty_like(part, dtype=flat.dtype, requires_grad=False)
                module_division.flat_part(state[name]).copy_(flat)
            state |= {name: placed_number(value, part, groups[number]) for name, value in values.items()}
            if state:
                self.of.state[part] = state
            else:
                self.of.state.pop(part, None)

    def _whole(self, state: Mapping[int, Mapping[str, Any]]) -> tuple[ShardedContent, dict[int, Mapping[str, Any]]]:
        """Return the content that the state of a plain optimizer gives, and what of it is not divided."""
        shards: list[dict[str, torch.Tensor]] = []
        numbers: list[dict[str, Any]] = []
        rest = dict(state)
        for number, weight in enumerate(self._weights()):
            if not module_division.is_part(weight):
                continue
            values = rest.pop(number, {})
            tensors = {name: value for name, value in values.items() if _is_elementwise(value)}
            if any(value.shape != weight.shape for value in tensors.values()):
                raise ShardingError(
                    f"fully_shard: the state to load has another shape for parameter {number} of the optimizer: it is "
                    "of another model"
                )
            shards.append({name: value.detach().to("cpu", copy=True).flatten() for name, value in tensors.items()})
            numbers.append({name: copied(value) for name, value in values.items() if name not in tensors})
        return ShardedContent(share=WHOLE, shards=shards, numbers=numbers), rest


def _is_elementwise(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _check_state(part: "DTensor", state: Mapping[str, Any]) -> None:
    """Raise ShardingError for a state that is neither divided as its parameter is, nor a number."""
    for name, value in state.items():
        is_part = module_division.is_part(value)
        fits = value.shape == part.shape and value.placements == part.placements if is_part else True
        if not fits or (not is_part and _is_elementwise(value)):
            raise ShardingError(
                f"the optimizer keeps {name}, neither a number nor one for each element of a parameter that "
                "fully_shard has divided: take one such as AdamW"
            )
