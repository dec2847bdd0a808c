"""Broadcast a tree of tensors and values from one rank to all others.

Horovod's `broadcast_optimizer_state` makes a new worker take an optimizer step with zero gradients, so that it has a
state to receive into. With weight decay, that step moves the parameters that the worker has just received; and L-BFGS
is not supported. Here the root first sends the shape of the tree, and each rank receives into the tensors it has, or
into new ones. Everything is sent as bytes, so every dtype works.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.state.host_memory import Path, Tree

PACK_BYTES: Final = 256 << 10
"""Smaller tensors are sent together: each separate broadcast costs about a millisecond of negotiation."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Stands for a tensor in the outline of a tree."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def broadcast(tree: Tree, root: int) -> Tree:
    """Return the root's tree on every rank. Tensors of `tree` that fit are received in place and are in the result."""
    is_root = hvd.rank() == root
    outline = hvd.broadcast_object(_outline(tree) if is_root else None, root_rank=root, name="hvd_elastic.outline")
    own_tensors = dict(_leaves(tree))
    result: dict[Path, torch.Tensor] = {}
    for path, leaf in _leaves(outline):
        own = own_tensors.get(path)
        result[path] = own if own is not None and (is_root or _fits(own, leaf)) else _empty(leaf)
    _send([tensor for tensor in result.values() if tensor.numel()], root)
    return _fill(outline, (), result)


def same_tensors(tree: Tree, other: Tree) -> bool:
    """Whether both trees hold the same tensor objects, so that neither needs to be loaded from the other."""
    first, second = dict(_leaves(tree)), dict(_leaves(other))
    return first.keys() == second.keys() and all(first[path] is second[path] for path in first)


def _outline(node: Tree) -> Tree:
    if isinstance(node, torch.Tensor):
        return TensorSpec(tuple(node.shape), node.dtype, node.device.type)
    if isinstance(node, dict):
        return {key: _outline(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_outline(value) for value in node]
    if type(node) is tuple:
        return tuple(_outline(value) for value in node)
    return node


def _leaves(node: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each tensor, or its TensorSpec, with its path; in the same order on every rank."""
    if isinstance(node, torch.Tensor | TensorSpec):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _leaves(value, (*path, index))


def _fill(node: Tree, path: Path, tensors: dict[Path, torch.Tensor]) -> Tree:
    if isinstance(node, TensorSpec):
        return tensors[path]
    if isinstance(node, dict):
        return {key: _fill(value, (*path, key), tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(value, (*path, index), tensors) for index, value in enumerate(node)]
    if type(node) is tuple:
        return tuple(_fill(value, (*path, index), tensors) for index, value in enumerate(node))
    return node


def _fits(tensor: torch.Tensor, leaf: TensorSpec) -> bool:
    same = tuple(tensor.shape) == leaf.shape and tensor.dtype == leaf.dtype and tensor.device.type == leaf.device
    return same and tensor.is_contiguous()


def _empty(leaf: TensorSpec) -> torch.Tensor:
    device = leaf.device if leaf.device == "cpu" or torch.cuda.is_available() else "cpu"
    return torch.empty(leaf.shape, dtype=leaf.dtype, device=device)


def _send(tensors: list[torch.Tensor], root: int) -> None:
    """Broadcast all tensors: large ones one by one, small ones packed, per device."""
    handles = []
    packs: dict[torch.device, list[torch.Tensor]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.nbytes >= PACK_BYTES:  # only the size decides, so that all ranks decide alike
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
        # Cloned, because a piece may begin at an address to which the dtype cannot be aligned.
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's own memory if it is contiguous, otherwise a copy."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
