"""The tree that a commit is: containers of tensors and plain values, each of the type that the script gave it.

Schedulers count in a Counter, modules keep their versions beside an OrderedDict, and scripts keep what they like. So a
copy of a tree keeps the type of every container, and of a tensor what a copy in host memory would lose.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

Tree = Any
"""Nested containers of tensors and plain values."""

Path = tuple[object, ...]

_IMMUTABLE: Final = (int, float, complex, str, bytes, bool, type(None))
_PLAIN: Final = frozenset(_IMMUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorKind:
    """What a tensor is besides its content, shape and dtype."""

    device: str = "cpu"
    """Type of its device: every worker has one of its own."""
    requires_grad: bool = False
    is_parameter: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "TensorKind":
        """Return the kind of `tensor`: PLAIN_TENSOR itself for most."""
        if type(tensor) is torch.Tensor and tensor.is_cpu and not tensor.requires_grad:
            return PLAIN_TENSOR
        return cls(
            device=tensor.device.type,
            requires_grad=tensor.requires_grad and tensor.is_leaf,
            is_parameter=isinstance(tensor, torch.nn.Parameter),
        )

    def cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of this kind, in the memory of `tensor` if that is on the device."""
        tensor = tensor.to(self._here())
        if self.is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=self.requires_grad)
        return tensor.requires_grad_() if self.requires_grad else tensor

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self._here())

    def _here(self) -> str:
        return self.device if self.device == "cpu" or torch.cuda.is_available() else "cpu"


PLAIN_TENSOR: Final = TensorKind()
"""The kind of a copy in host memory."""


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the content of a tensor is one piece of memory, so that its bytes can be copied."""
    return tensor.layout is torch.strided and not tensor.is_quantized


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor: its own memory if it is contiguous, otherwise a copy."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # Not `view(-1)`: a single element out of a row is contiguous, and keeps the row's stride.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def rebuild(node: Tree, leaf: Callable[[Path, Any], Tree], kind: type = torch.Tensor, path: Path = ()) -> Tree:
    """Return a copy of a tree that shares nothing with it.

    Args:
        node: the tree.
        leaf: called with the path and each object of `kind`; what it returns takes the place of the object.
        kind: class of the leaves.
        path: path of `node`.
    """
    if isinstance(node, kind):
        return leaf(path, node)
    if isinstance(node, _IMMUTABLE):
        return node
    own_type = type(node)
    if own_type is dict:
        return {key: rebuild(value, leaf, kind, (*path, key)) for key, value in node.items()}
    if own_type is list or own_type is tuple or hasattr(own_type, "_make"):
        return _sequence(node, leaf, kind, path)
    if isinstance(node, dict):
        return _mapping(node, leaf, kind, path)
    return copy.deepcopy(node)


def _sequence(node: Tree, leaf: Callable[[Path, Any], Tree], kind: type, path: Path) -> Tree:
    if _PLAIN.issuperset(map(type, node)):  # a long history of numbers
        items: Iterable[Tree] = node
    else:
        items = [rebuild(value, leaf, kind, (*path, index)) for index, value in enumerate(node)]
    return type(node)._make(items) if hasattr(node, "_make") else type(node)(items)


def _mapping(node: dict[Any, Tree], leaf: Callable[[Path, Any], Tree], kind: type, path: Path) -> Tree:
    """Copy a subclass of dict, with its attributes: a `state_dict()` has the versions of its modules there."""
    result = copy.copy(node)
    for key, value in node.items():
        dict.__setitem__(result, key, rebuild(value, leaf, kind, (*path, key)))
    if attributes := getattr(node, "__dict__", None):
        vars(result).update(rebuild(attributes, leaf, kind, (*path, "__dict__")))
    return result


def leaves(node: Tree, kind: type = torch.Tensor, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each object of `kind` with its path: those for which `rebuild` calls `leaf`, in the same order."""
    if isinstance(node, kind):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, kind, (*path, key))
        if attributes := getattr(node, "__dict__", None):
            yield from leaves(attributes, kind, (*path, "__dict__"))
    elif type(node) in (list, tuple) or hasattr(type(node), "_make"):
        for index, value in enumerate(node):
            yield from leaves(value, kind, (*path, index))


def clone(tree: Tree) -> Tree:
    """Return a copy that shares no memory with `tree`."""
    return rebuild(tree, lambda _, tensor: TensorKind.of(tensor).cast(tensor.detach().clone()))
