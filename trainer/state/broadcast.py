"""Broadcast a tree of tensors and values from one rank to all others.

Horovod's `broadcast_optimizer_state` makes a new worker take an optimizer step with zero gradients, so that it has a
state to receive into. With weight decay, that step moves the parameters that the worker has just received; and L-BFGS
is not supported. Here the root first sends the shape of the tree, and each rank receives into new tensors, or into
those that it names. Everything is sent as bytes, so every dtype works.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.state.state_tree import Path, TensorKind, Tree, is_dense, leaves, raw_bytes, rebuild

PACK_BYTES: Final = 256 << 10
"""Smaller tensors are sent together: each separate broadcast costs about a millisecond of negotiation."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Stands for a tensor in the outline of a tree."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: TensorKind

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "TensorSpec":
        return cls(tuple(tensor.shape), tensor.dtype, TensorKind.of(tensor))

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether the root's tensor can be received into `tensor`."""
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            return False
        return TensorSpec.of(tensor) == self


def broadcast(tree: Tree, root: int, *, into: Mapping[Path, torch.Tensor], world: TrainingWorld = WORLD) -> Tree:
    """Return the root's tree on every rank.

    Args:
        tree: the root's tree; not used on other ranks.
        root: the rank that sends.
        into: tensors of this rank that the root's may be written to if they fit, by path. A failure leaves a part of
            them written.
        world: of the ranks.
    """
    is_root = world.rank() == root
    outline = rebuild(tree, _outline) if is_root else None
    outline = world.broadcast_object(outline, root=root, name="hvd_elastic.outline")
    if is_root:
        _send([tensor for _, tensor in leaves(tree) if is_dense(tensor)], root, world)
        return tree
    received = {path: _destination(spec, into.get(path)) for path, spec in leaves(outline, TensorSpec)}
    _send(list(received.values()), root, world)
    return rebuild(outline, lambda path, spec: spec.kind.cast(received[path]), TensorSpec)


def _outline(_: Path, tensor: torch.Tensor) -> TensorSpec | torch.Tensor:
    return TensorSpec.of(tensor) if is_dense(tensor) else tensor.detach().cpu()


def _destination(spec: TensorSpec, own: torch.Tensor | None) -> torch.Tensor:
    return own if own is not None and spec.fits(own) else spec.kind.empty(spec.shape, spec.dtype)


def _send(tensors: list[torch.Tensor], root: int, world: TrainingWorld) -> None:
    """Broadcast all tensors: large ones one by one, small ones packed, per device."""
    begun = []
    packs: dict[torch.device, list[torch.Tensor]] = {}
    for index, tensor in enumerate(tensors):
        if not tensor.numel():
            continue
        if tensor.nbytes >= PACK_BYTES:  # only the size decides, so that all ranks decide alike
            begun.append(world.broadcast_async_(raw_bytes(tensor), root, name=f"hvd_elastic.sync.{index}"))
        else:
            packs.setdefault(tensor.device, []).append(tensor)
    packed = [(pack, torch.cat([raw_bytes(tensor) for tensor in pack])) for pack in packs.values()]
    for index, (_, joined) in enumerate(packed):
        begun.append(world.broadcast_async_(joined, root, name=f"hvd_elastic.pack.{index}"))
    for finish in begun:
        finish()
    if world.rank() != root:
        for pack, joined in packed:
            _unpack(pack, joined)


def _unpack(pack: list[torch.Tensor], joined: torch.Tensor) -> None:
    with torch.no_grad():
        for tensor, piece in zip(pack, torch.split(joined, [tensor.nbytes for tensor in pack]), strict=True):
            # Cloned, because a piece may begin at an address to which the dtype cannot be aligned.
            tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))
