"""`elastic.ShardedOptimizer`: any elementwise optimizer of torch, with its state divided over the ranks (ZeRO stage 1).

A step: the gradients are averaged bucket by bucket, each rank steps its share of each bucket with an optimizer of its
own, and all gather the parameters. Between steps a rank keeps its share of the state, and nothing else of it.

What is kept is in one of two places: in the inner optimizer, on the device of the parameters, or staged in host memory,
where it was loaded or came from other ranks. The first step that follows puts it on the device.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from hvd_elastic.trainer.sharding.elementwise import OptimizerClass, ShardingError, require_elementwise
from hvd_elastic.trainer.sharding.host_shards import copied_to_host
from hvd_elastic.trainer.sharding.optimizer_content import from_plain, to_plain
from hvd_elastic.trainer.sharding.parameter_buckets import ParameterBuckets
from hvd_elastic.trainer.sharding.sharded_content import SHARE, ShardedContent
from hvd_elastic.trainer.sharding.share_optimizer import ShareOptimizer, options_of
from hvd_elastic.trainer.sharding.share_transfer import gather
from hvd_elastic.trainer.sharding.shares import WHOLE, Bucket, Share
from hvd_elastic.trainer.sharding.step_communication import StepCommunication

Closure = Callable[[], Any]


class ShardedOptimizer(torch.optim.Optimizer):
    """An optimizer whose state is divided over the ranks: each keeps and steps one part in as many as there are ranks.

    It takes the place of `hvd.DistributedOptimizer(torch.optim.AdamW(...))`, and averages the gradients itself. In a
    `State` it goes on over resizes and lost ranks.

    Example:
        ```python
        optimizer = elastic.ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-4, weight_decay=0.1)
        state = elastic.State(model=model, optimizer=optimizer)
        ```

    A parameter without a gradient is stepped with a gradient of zeros, as with `hvd.DistributedOptimizer`. One that
    does not require a gradient when the optimizer is made is left alone.

    Args:
        params: parameters, or parameter groups, as for any optimizer of torch.
        optimizer_class: makes an optimizer of parameters and options, such as `torch.optim.AdamW`. It must treat each
            element of a parameter by itself, as Adam, AdamW and SGD do. It is tried on twelve weights.
        options: its options: `lr`, `weight_decay` ...

    Raises:
        ShardingError: the optimizer is not elementwise, or a parameter cannot be sharded.
    """

    _step_supports_amp_scaling: Final = True
    """So that a GradScaler calls `step` on every rank, or on none."""

    def __init__(self, params: Any, optimizer_class: OptimizerClass | None = None, **options: Any) -> None:
        if optimizer_class is None:
            raise ShardingError(
                "ShardedOptimizer: give the class of the optimizer: ShardedOptimizer(params, torch.optim.AdamW,"
                " lr=...). hvd.DistributedOptimizer does not take a ShardedOptimizer, which averages by itself"
            )
        require_elementwise(optimizer_class, options)
        template = optimizer_class([torch.nn.Parameter(torch.zeros(1))], **options)
        self._is_complete = False
        super().__init__(params, template.defaults)
        self._is_complete = True
        self._optimizer_class, self._options = optimizer_class, options
        self._parameters = ParameterBuckets(self.param_groups)
        self._communication = StepCommunication(self._parameters)
        self._inner: ShareOptimizer | None = None
        self._staged: ShardedContent | None = None
        self._gradients: list[torch.Tensor] | None = None
        self._is_synchronized = False

    # --- What the script calls ---------------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Any:
        """Average the gradients, step this rank's share, and gather the parameters. Call it on every rank.

        Args:
            closure: called once, before the gradients are averaged; what it returns is returned.

        Raises:
            ShardingError: the state is that of another world; or a GradScaler steps without `synchronize()`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_scaler()
        inner = self._inner_of_this_world()
        with torch.no_grad():
            gradients = self._take_gradients()
            found_inf = self._of_scaler("found_inf")
            if found_inf is None or not found_inf.item():
                inner.step(gradients, self.param_groups)
                self._communication.gather_weights(inner.shards)
        return loss

    def synchronize(self) -> None:
        """Average the gradients of all ranks in place, as `hvd.DistributedOptimizer.synchronize()` does.

        For what needs whole gradients between the backward pass and the step: `scaler.unscale_`, or clipping in a way
        of the script's own. The step that follows does not average again.
        """
        with torch.no_grad():
            if WORLD.size() > 1:
                self._communication.average_gradients()
            self._is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Do nothing: the step after `synchronize()` does not average again. For scripts written for Horovod."""
        yield

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Clip the averaged gradients to a norm over all parameters, in place of `torch.nn.utils.clip_grad_norm_`.

        A collective operation, between the backward pass and the step. Only this rank's share of the gradients is
        averaged and scaled; `parameter.grad` stays as it is.

        Args:
            max_norm: greatest 2-norm.

        Returns:
            The norm before, the same on every rank.
        """
        with torch.no_grad():
            gradients = self._gradients = self._take_gradients()
            numbers = [torch.view_as_real(each) if each.is_complex() else each for each in gradients]
            norms = [torch.linalg.vector_norm(each, dtype=torch.float32).double().cpu() for each in numbers]
            squares = torch.stack(norms).square().sum()
            if WORLD.size() > 1:
                squares = WORLD.allreduce(squares, op=ReduceOp.SUM, name="hvd_elastic.clip")
            norm = squares.sqrt().float()
            factor = (max_norm / (norm + 1e-6)).clamp(max=1.0).item()
            for each in gradients:
                each.mul_(factor)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's share of the state, for a rank of the same number in a world of the same size.

        For all of it see `full_state_dict`. A `State` needs neither: it moves shares between worlds itself.
        """
        return {**self.content.state_dict(), "param_groups": self._packed_groups()}

    def full_state_dict(self) -> dict[str, Any] | None:
        """Return on rank 0 what the optimizer would have that is not sharded, in host memory; None on all others.

        A collective operation. `optimizer_class(model.parameters()).load_state_dict()` takes it, and so does
        `ShardedOptimizer.load_state_dict()` in a world of any size.
        """
        return self.gathered(self.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what `state_dict`, `full_state_dict` or the `state_dict` of an optimizer that is not sharded gave.

        It is copied into host memory, and onto the device by the next step.

        Raises:
            ShardingError: it is of another model, or its parameters were not stepped alike.
        """
        groups = state_dict["param_groups"]
        if [len(each["params"]) for each in groups] != [len(each["params"]) for each in self.param_groups]:
            raise ShardingError(
                "ShardedOptimizer: the state to load has "
                f"{[len(each['params']) for each in groups]} parameters in its groups, and the optimizer "
                f"{[len(each['params']) for each in self.param_groups]}: it is of another model"
            )
        if SHARE in state_dict:
            given = ShardedContent.of(state_dict)
            numbers = [dict(each) for each in given.numbers]
            content = ShardedContent(share=given.share, shards=copied_to_host(given.shards), numbers=numbers)
        else:
            content = from_plain(state_dict["state"], self.buckets, self._parameters.shapes)
        self.place(content)
        for own, loaded in zip(self.param_groups, groups, strict=True):
            own.update(copy.deepcopy(options_of(loaded)))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse a group after the optimizer was made. Raises ShardingError."""
        if getattr(self, "_is_complete", False):
            raise ShardingError(
                "ShardedOptimizer: add_param_group: what each rank keeps follows from the parameters it was made with."
                " Give it all groups at once"
            )
        super().add_param_group(param_group)

    # --- What a State calls ------------------------------------------------------------------------------------------

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """What the parameters are cut into: the same on every rank, whatever the size of the world."""
        return self._parameters.buckets

    @property
    def lengths(self) -> tuple[int, ...]:
        """Elements of each bucket."""
        return self._parameters.lengths

    @property
    def content(self) -> ShardedContent:
        """What this rank keeps. Its tensors are the optimizer's own."""
        if self._staged is not None:
            return self._staged
        return self._inner.content if self._inner is not None else ShardedContent.empty(self.buckets, WHOLE)

    @property
    def begins_divided(self) -> bool:
        """Whether each rank may begin training with a share of its own: of steps that it alone knows it may not."""
        return False

    def place(self, content: ShardedContent) -> None:
        """Keep this from now on, and nothing of what was kept. Its memory is the optimizer's own."""
        self._staged, self._inner = content, None
        self.state.clear()
        self.forget_gradients()

    def forget_gradients(self) -> None:
        """Forget what was averaged for a step that was not taken."""
        self._gradients, self._is_synchronized = None, False

    def gathered(self, state_dict: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return on rank 0 the whole plain `state_dict` of which each rank gives its share. A collective operation."""
        content = gather(ShardedContent.of(state_dict), self.lengths, label="gather")
        if content is None:
            return None
        state = to_plain(content, self.buckets, self._parameters.shapes)
        return {"state": state, "param_groups": state_dict["param_groups"]}

    # --- Internal ----------------------------------------------------------------------------------------------------

    def _packed_groups(self) -> list[dict[str, Any]]:
        packed, at = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            packed.append({**options_of(group), "params": list(range(at, at + count))})
            at += count
        return packed

    def _inner_of_this_world(self) -> ShareOptimizer:
        """Return the optimizer of this rank's share, with the state that was staged."""
        world = Share(rank=WORLD.rank(), size=WORLD.size())
        kept = self._inner.share if self._inner is not None else self.content.share
        if kept == WHOLE != world:  # every rank was given all of it
            self._staged, self._inner = self.content.cut(world, self.buckets), None
        elif kept != world:
            raise ShardingError(
                f"ShardedOptimizer: it has the share of rank {kept.rank} of {kept.size}, and this is rank"
                f" {world.rank} of {world.size}. Put the optimizer into the State that elastic.run is called with,"
                " which moves the shares"
            )
        return self._inner if self._inner is not None else self._begin(world)

    def _begin(self, share: Share) -> ShareOptimizer:
        inner = self._inner = ShareOptimizer(
            self._optimizer_class, self._options, parameters=self._parameters, groups=self.param_groups, share=share
        )
        content, self._staged = self._staged, None
        if content is not None and not content.is_empty:
            inner.load(content, self.param_groups)
        self.state = inner.state
        return inner

    def _take_gradients(self) -> list[torch.Tensor]:
        """Return this rank's share of the averaged gradients of each bucket, which no later call returns."""
        share = Share(rank=WORLD.rank(), size=WORLD.size())
        if self._gradients is not None:
            gradients = self._gradients
        elif self._is_synchronized or share.size == 1:
            gradients = [self._parameters.gradients(bucket, share) for bucket in self.buckets]
        else:
            gradients = self._communication.averaged_share(share)
        self.forget_gradients()
        scale = self._of_scaler("grad_scale")
        if scale is not None:
            inverse = scale.double().reciprocal().float()  # as GradScaler.unscale_ does
            for each in gradients:
                each.mul_(inverse.to(each.device))
        return gradients

    def _of_scaler(self, name: str) -> torch.Tensor | None:
        """Return what a GradScaler has set for the time of a step. It takes what is there without one for a number."""
        value: torch.Tensor | None = getattr(self, name, None)
        return value

    def _check_scaler(self) -> None:
        if self._of_scaler("found_inf") is not None and not self._is_synchronized:
            raise ShardingError(
                "ShardedOptimizer: with a GradScaler call optimizer.synchronize() after the backward pass, before"
                " scaler.unscale_ and scaler.step: else each rank looks for overflows in its own gradients alone, and"
                " their scales drift apart"
            )
