"""One tree of tensors and values, from one rank to all others.

Horovod's `broadcast_optimizer_state` lets a newcomer take an optimizer step with zero gradients so that it has a
state to receive into, which with weight decay moves the parameters it has just received, and it refuses L-BFGS. Here
the root first sends the shape of the tree, and everybody receives into tensors it has, or new ones. Everything
travels as bytes: no type is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.state.host_memory import Path, Tree

PACK_BYTES: Final = 256 << 10
"""Tensors below this travel together: a broadcast of its own costs each about a millisecond of negotiation."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Stands for a tensor in the shape of a tree."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def broadcast(tree: Tree, root: int) -> Tree:
    """The root's tree on every rank. Tensors of `tree` that fit are received in place and are part of the result."""
    is_root = hvd.rank() == root
    outline = hvd.broadcast_object(_outline(tree) if is_root else None, root_rank=root, name="hvd_elastic.outline")
    mine = dict(_leaves(tree))
    result: dict[Path, torch.Tensor] = {}
    for path, leaf in _leaves(outline):
        own = mine.get(path)
        result[path] = own if own is not None and (is_root or _fits(own, leaf)) else _empty(leaf)
    _send([tensor for tensor in result.values() if tensor.numel()], root)
    return _filled(outline, (), result)


def same_tensors(tree: Tree, other: Tree) -> bool:
    """Whether both trees hold the very same tensors, so that one need not be loaded from the other."""
    ours, theirs = dict(_leaves(tree)), dict(_leaves(other))
    return ours.keys() == theirs.keys() and all(ours[path] is theirs[path] for path in ours)


def _outline(node: Tree) -> Tree:
    if isinstance(node, torch.Tensor):
        return Leaf(tuple(node.shape), node.dtype, node.device.type)
    if isinstance(node, dict):
        return {key: _outline(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_outline(value) for value in node]
    if type(node) is tuple:
        return tuple(_outline(value) for value in node)
    return node


def _leaves(node: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Tensors, or what stands for them, with their path; in the same order on every rank."""
    if isinstance(node, torch.Tensor | Leaf):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _leaves(value, (*path, index))


def _filled(node: Tree, path: Path, tensors: dict[Path, torch.Tensor]) -> Tree:
    if isinstance(node, Leaf):
        return tensors[path]
    if isinstance(node, dict):
        return {key: _filled(value, (*path, key), tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, (*path, index), tensors) for index, value in enumerate(node)]
    if type(node) is tuple:
        return tuple(_filled(value, (*path, index), tensors) for index, value in enumerate(node))
    return node


def _fits(tensor: torch.Tensor, leaf: Leaf) -> bool:
    same = tuple(tensor.shape) == leaf.shape and tensor.dtype == leaf.dtype and tensor.device.type == leaf.device
    return same and tensor.is_contiguous()


def _empty(leaf: Leaf) -> torch.Tensor:
    device = leaf.device if leaf.device == "cpu" or torch.cuda.is_available() else "cpu"
    return torch.empty(leaf.shape, dtype=leaf.dtype, device=device)


def _send(tensors: list[torch.Tensor], root: int) -> None:
    """Broadcast all of them: the large ones each, the small ones packed, per device."""
    handles = []
    packs: dict[torch.device, list[torch.Tensor]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.nbytes >= PACK_BYTES:  # the size alone decides, so that all ranks decide alike
            handles.append(hvd.broadcast_async_(_bytes(tensor), root, name=f"hvd_elastic.sync.{index}"))
        else:
            packs.setdefault(tensor.device, []).append(tensor)
    packed = [(pack, torch.cat([_bytes(tensor) for tensor in pack])) for pack in packs.values()]
    for index, (_, joined) in enumerate(packed):
        handles.append(hvd.broadcast_async_(joined, root, name=f"hvd_elastic.pack.{index}"))
    for handle in handles:
        hvd.synchronize(handle)
    if hvd.rank() != root:
        for pack, joined in packed:
            _unpack(pack, joined)


def _unpack(pack: list[torch.Tensor], joined: torch.Tensor) -> None:
    for tensor, piece in zip(pack, torch.split(joined, [tensor.nbytes for tensor in pack]), strict=True):
        # Cloned, because a piece may begin where the type may not.
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory where it is contiguous, else a copy."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
