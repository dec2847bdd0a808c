"""The optimizer of one rank's share: one of torch, over a flat tensor for each bucket."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hvd_elastic.trainer.sharding.elementwise import OptimizerClass
from hvd_elastic.trainer.sharding.optimizer_content import is_sharded
from hvd_elastic.trainer.sharding.parameter_buckets import ParameterBuckets
from hvd_elastic.trainer.sharding.sharded_content import ShardedContent
from hvd_elastic.trainer.sharding.shares import Share

Groups = Sequence[dict[str, Any]]
"""The `param_groups` of the whole: their options hold for the share."""


class ShareOptimizer:
    """Steps a share of the weights of each bucket, and keeps its state on the device of the parameters."""

    def __init__(
        self,
        optimizer_class: OptimizerClass,
        options: Mapping[str, Any],
        *,
        parameters: ParameterBuckets,
        groups: Groups,
        share: Share,
    ) -> None:
        self.share = share
        self._parameters = parameters
        self.shards: list[torch.Tensor] = []
        """The share's weights of each bucket, as they are after a step."""
        members: list[list[torch.Tensor]] = [[] for _ in groups]
        for bucket in parameters.buckets:
            start, stop = share.range(bucket.length)
            shard = parameters.empty(bucket, stop - start)
            self.shards.append(shard)
            members[bucket.group].append(shard)
        own = [{**options_of(group), "params": shards} for group, shards in zip(groups, members, strict=True)]
        self._inner: torch.optim.Optimizer = optimizer_class(own, **options)

    @property
    def state(self) -> Any:
        """The optimizer's own, by shard."""
        return self._inner.state

    @property
    def content(self) -> ShardedContent:
        """What it keeps. Its tensors are the optimizer's own."""
        states = [self._inner.state[shard] for shard in self.shards]
        shards = [{name: value for name, value in each.items() if is_sharded(value)} for each in states]
        numbers = [{name: value for name, value in each.items() if not is_sharded(value)} for each in states]
        return ShardedContent(share=self.share, shards=shards, numbers=numbers)

    def load(self, content: ShardedContent, groups: Groups) -> None:
        """Take the state of this share. Tensors on its device are its own from now on, others are copied there."""
        owners = [groups[bucket.group] for bucket in self._parameters.buckets]
        for shard, tensors, numbers, group in zip(self.shards, content.shards, content.numbers, owners, strict=True):
            self._inner.state[shard] = {
                **{name: tensor.to(shard.device) for name, tensor in tensors.items()},
                **{name: placed_number(value, shard, group) for name, value in numbers.items()},
            }

    def step(self, gradients: Sequence[torch.Tensor], groups: Groups) -> None:
        """Step the share of the weights as they are now. The result is in `shards` alone.

        Args:
            gradients: those of the share, by bucket.
            groups: their options are used, and become what the step has made of them.
        """
        for group, own in zip(groups, self._inner.param_groups, strict=True):
            own.update(options_of(group))
        for bucket, shard, gradient in zip(self._parameters.buckets, self.shards, gradients, strict=True):
            self._parameters.read_weights(bucket, self.share, shard)
            shard.grad = gradient
        self._inner.step()
        for shard in self.shards:
            shard.grad = None
        for group, own in zip(groups, self._inner.param_groups, strict=True):
            group.update(options_of(own))  # some optimizers count their steps there


def options_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter group without its parameters."""
    return {name: value for name, value in group.items() if name != "params"}


def placed_number(value: Any, shard: torch.Tensor, group: Mapping[str, Any]) -> Any:
    """Return a number of the state where the optimizer wants it, as torch's own `load_state_dict` decides."""
    if not isinstance(value, torch.Tensor):
        return value
    on_device = group.get("capturable") or group.get("fused")
    return value.detach().clone().to(shard.device if on_device else "cpu")
