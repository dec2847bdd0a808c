"""How far apart workers are that should be alike, and in what. Every function here is collective."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import torch

from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld
from hvd_elastic.trainer.state.broadcast import broadcast
from hvd_elastic.trainer.state.replicas.fingerprint import fingerprint
from hvd_elastic.trainer.state.replicas.replicated import Key, Replicated

_LEAST: Final = 1e-5
_ROUNDINGS: Final = 4


def tolerance(dtype: torch.dtype) -> float:
    """The largest difference, as a part of the largest value of a tensor, that still counts as rounding.

    Some 80 roundings of float32, as long sums have, and few of a short type, whose own roundings are large.
    """
    return max(_LEAST, _ROUNDINGS * torch.finfo(dtype).eps) if dtype.is_floating_point or dtype.is_complex else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first tensor that differs by more than rounding, or else what differs by rounding."""

    differing: Sequence[Key]
    """Tensors that some rank holds otherwise than the reference, in its order."""
    first: Key | None
    """The first that differs by more than rounding; None: there is none."""
    most: float | None
    """The largest difference of an element of `first`; None: some ranks lack it, or have it in another shape."""

    @property
    def is_rounding(self) -> bool:
        return self.first is None

    @property
    def is_of_shape(self) -> bool:
        """Whether ranks hold other tensors, or other shapes and types of them: there is nothing to compare."""
        return self.first is not None and self.most is None

    @classmethod
    def measure(cls, held: Replicated, reference: int, world: TrainingWorld) -> Self:
        """Compare what each rank holds with what the reference does. `reference`: a rank."""
        own = {key: (_form(tensor), fingerprint([tensor])) for key, tensor in held.tensors.items()}
        everyone = world.allgather_object(own, name="hvd_elastic.replicas_held")
        theirs = everyone[reference]
        keys = [*theirs, *(key for each in everyone for key in each if key not in theirs)]
        for key in dict.fromkeys(keys):
            if len({each[key][0] if key in each else None for each in everyone}) > 1:
                return cls(differing=[key], first=key, most=None)
        differing = [key for key in theirs if len({each[key][1] for each in everyone}) > 1]
        for key in differing:
            most, part = _distance(held.tensors[key], reference, world)
            if not part <= tolerance(held.tensors[key].dtype):  # NaN is no rounding
                return cls(differing=differing, first=key, most=most)
        return cls(differing=differing, first=None, most=None)


def take_from(reference: int, keys: Sequence[Key], held: Replicated, world: TrainingWorld) -> None:
    """Give every rank the tensors that the reference holds, in their own memory."""
    for key in keys:  # one at a time: together they may be as large as the model
        own = held.tensors[key]
        with torch.no_grad():
            own.copy_(broadcast([own.detach()], reference, into={}, world=world)[0])


def _distance(own: torch.Tensor, reference: int, world: TrainingWorld) -> tuple[float, float]:
    """The largest difference over all ranks: of an element, and as a part of the largest value."""
    theirs = broadcast([own.detach()], reference, into={}, world=world)[0]
    wide = torch.complex128 if own.is_complex() else torch.float64
    gap = (own.detach().to("cpu", wide) - theirs.to("cpu", wide)).abs()
    # The same infinity, or the same NaN, on both sides is no difference.
    same = (own.detach().cpu() == theirs.cpu()) | (own.detach().cpu().isnan() & theirs.cpu().isnan())
    most = gap.masked_fill(same, 0.0).nan_to_num(nan=math.inf).max().item() if gap.numel() else 0.0
    scale = theirs.to("cpu", wide).abs().nan_to_num(posinf=0.0).max().item() if gap.numel() else 0.0
    told = torch.tensor([most, most / scale if scale else math.inf if most else 0.0], dtype=torch.float64)
    largest = world.allreduce(told, op=ReduceOp.MAX, name="hvd_elastic.replicas_distance").tolist()
    return largest[0], largest[1]


def _form(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    return str(tensor.dtype), tuple(tensor.shape)
