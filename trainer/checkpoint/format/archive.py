"""The serialized form of a snapshot: a JSON tree and raw tensors. It contains no code, so reading one runs none.

Layout, all integers little-endian::

    8 bytes   MAGIC
    8 bytes   length of the tree
    tree      JSON: {"values": VALUE, "tensors": [{"dtype": "float32", "shape": [..], "offset": O}, ...],
              "writer": {"hvd_elastic": "0.1.0", "torch": "2.9.0"}}; archives of earlier versions have no writer
    tensors   at multiples of 64 from the start of the archive, row-major

VALUE is null, a boolean, a number or a string as in JSON, a list, or an object with one key, its kind:

    containers  dict, ordered, counter, defaultdict (pairs: keys need not be strings), tuple, namedtuple, deque, set,
                frozenset; with_attributes (a container and the pairs of its attributes)
    tensors     tensor, tensor_with_grad, parameter, ndarray (an index into the table); tensors that are tied share one
    others      see `plain_values`
"""

import json
import math
import struct
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from hvd_elastic.trainer.checkpoint.errors import CaptureError, CheckpointError, CorruptError
from hvd_elastic.trainer.checkpoint.format.capture import FACTORIES, Capture
from hvd_elastic.trainer.checkpoint.format.plain_values import DECODERS, dtype_name, dtype_named, number_dtype
from hvd_elastic.trainer.checkpoint.format.script_types import find_named_tuple

MAGIC: Final = b"HVDECKP1"
ALIGNMENT: Final = 64
HEAD_BYTES: Final = 16

Bytes = npt.NDArray[np.uint8]


@cache
def _writer() -> dict[str, str]:
    """Return the versions that write archives in this process."""
    try:
        own = metadata.version("hvd-elastic")
    except metadata.PackageNotFoundError:
        own = "not installed"
    return {"hvd_elastic": own, "torch": str(torch.__version__)}


def aligned(offset: int) -> int:
    """Return the next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Payload:
    """A capture as one sequence of bytes. It is never assembled in memory: parts are copied out of it on demand."""

    def __init__(self, capture: Capture) -> None:
        """Write the header, and read it back: what cannot be read is not stored. Raises CaptureError."""
        self.capture = capture
        try:
            tree = self._tree()
            _Values(capture.tensors, copy_arrays=False).restored(json.loads(tree)["values"])
        except (*DAMAGE, CheckpointError) as error:
            raise CaptureError(f"the snapshot's header cannot be read back: {error!r}") from error
        self._starts = [0]
        self._pieces: list[Bytes] = [np.frombuffer(MAGIC + struct.pack("<Q", len(tree)) + tree, np.uint8)]
        end = self._pieces[0].size
        for tensor in capture.tensors:
            self._starts.append(aligned(end))
            self._pieces.append(_raw(tensor))
            end = self._starts[-1] + self._pieces[-1].size
        self.size_bytes = end

    def _tree(self) -> bytes:
        """Return the JSON tree. Its offsets count from the first tensor, as the tree's own length is not known yet."""
        table, offset = [], 0
        for tensor in self.capture.tensors:
            table.append({"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape), "offset": offset})
            offset = aligned(offset + tensor.numel() * tensor.element_size())
        tree = {"values": self.capture.values, "tensors": table, "writer": _writer()}
        return json.dumps(tree, separators=(",", ":")).encode()

    def copy(self, offset: int, target: bytearray) -> None:
        """Fill `target` with the bytes from `offset` on. numpy releases the interpreter lock meanwhile."""
        into = np.frombuffer(target, np.uint8)
        end = offset + into.size
        index = bisect_right(self._starts, offset) - 1
        at = offset
        while at < end:
            start, piece = self._starts[index], self._pieces[index]
            until = min(end, start + piece.size)
            if at < until:
                into[at - offset : until - offset] = piece[at - start : until - start]
            index += 1
            following = min(end, self._starts[index]) if index < len(self._starts) else end
            into[max(until, at) - offset : following - offset] = 0
            at = following


def _raw(tensor: torch.Tensor) -> Bytes:
    # Not reshape(-1): it may keep the stride of a dimension of length 1, and then its bytes cannot be viewed.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).numpy()


DAMAGE: Final = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RuntimeError,
    RecursionError,
    ArithmeticError,
    MemoryError,
)
"""What reading a damaged tree may raise."""


def restore(buffer: torch.Tensor, *, stand_ins: bool = False) -> dict[str, object]:
    """Return the values of an archive. Its tensors are views of `buffer`, a tensor of uint8 in one dimension.

    Args:
        buffer: the whole archive.
        stand_ins: take a tuple for a named tuple, and `Class.MEMBER` for a member of an enumeration: who reads does not
            have the script's classes. Default False.

    Raises:
        CorruptError: it is not an archive, or its tree points outside of it.
        IncompatibleError: a class that it names is not there. Not with `stand_ins`.
    """
    try:
        end = head_bytes(buffer)
        tree = _tree(buffer, end)
        tensors = [_view(buffer, aligned(end), entry) for entry in tree["tensors"]]
        values = _Values(tensors, copy_arrays=True, stand_ins=stand_ins).restored(tree["values"])
    except DAMAGE as error:
        raise CorruptError(f"not an archive of this format: {error!r}") from error
    return _checked_root(values)


def restore_values(values: object, tensors: list[torch.Tensor]) -> object:
    """Return what the `values` of a tree stand for, with these tensors. Raises one of DAMAGE if they do not fit."""
    return _Values(tensors, copy_arrays=True).restored(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What an archive holds, without the content of its tensors."""

    values: dict[str, object]
    """As `restore` returns them with `stand_ins`. Tensors are on the device `meta`; arrays have the right shape and
    dtype, and take no memory."""
    writer: Mapping[str, str]
    """Versions of hvd_elastic and torch that wrote it, by name; empty for one of an earlier version."""


def outline(head: torch.Tensor) -> Outline:
    """Read the first `head_bytes` of an archive, or more of it. Raises CorruptError."""
    try:
        tree = _tree(head, head_bytes(head))
        tensors = [
            torch.empty(_sizes(entry), dtype=dtype_named(entry["dtype"]), device="meta") for entry in tree["tensors"]
        ]
        values = _Values(tensors, copy_arrays=False, stand_ins=True).restored(tree["values"])
        writer = {str(name): str(version) for name, version in tree.get("writer", {}).items()}
    except DAMAGE as error:
        raise CorruptError(f"not an archive of this format: {error!r}") from error
    return Outline(values=_checked_root(values), writer=writer)


def _checked_root(values: object) -> dict[str, object]:
    if not isinstance(values, dict):
        raise CorruptError("not an archive of this format: its root is not a dictionary")
    return values


def head_bytes(beginning: torch.Tensor) -> int:
    """Return where the tree ends, from the first HEAD_BYTES or more of an archive. Raises ValueError."""
    head = beginning[:HEAD_BYTES].numpy().tobytes()
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        raise ValueError("it does not begin with the archive's magic bytes")
    length: int = struct.unpack("<Q", head[len(MAGIC) :])[0]
    return HEAD_BYTES + length


def _tree(buffer: torch.Tensor, end: int) -> Any:
    if end > buffer.numel():
        raise ValueError("its tree is longer than the archive")
    return json.loads(buffer[HEAD_BYTES:end].numpy().tobytes())


def _sizes(entry: Mapping[str, object]) -> torch.Size:
    shape = entry["shape"]
    if not isinstance(shape, list) or any(length < 0 for length in shape):
        raise TypeError(f"a tensor is described as {entry}")
    return torch.Size(shape)


def _view(buffer: torch.Tensor, first: int, entry: Mapping[str, object]) -> torch.Tensor:
    dtype, sizes, offset = dtype_named(entry["dtype"]), _sizes(entry), entry["offset"]
    if not isinstance(offset, int):
        raise TypeError(f"a tensor is described as {entry}")
    start = first + offset
    end = start + math.prod(sizes) * dtype.itemsize
    if offset < 0 or end > max(buffer.numel(), start):
        raise ValueError(f"a tensor ends at {end} of {buffer.numel()} bytes")
    if start == end:
        return torch.empty(sizes, dtype=dtype)
    # Through numpy, each tensor has its own storage that starts at 0: torch.set_rng_state reads a view from the start
    # of its storage, and crashes.
    return torch.from_numpy(buffer[start:end].numpy()).view(dtype).view(sizes)


class _Values:
    """Builds the values of a tree."""

    def __init__(self, tensors: list[torch.Tensor], *, copy_arrays: bool, stand_ins: bool = False) -> None:
        self._tensors = tensors
        self._copy_arrays = copy_arrays
        self._stand_ins = stand_ins
        self._with_grad: dict[tuple[str, int, bool], torch.Tensor] = {}
        """Made once for each tensor: what was one object is one object again."""

    def restored(self, node: object) -> object:
        if isinstance(node, list):
            return [self.restored(each) for each in node]
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        if self._stand_ins and kind == "enum":
            _, name, member = content
            return f"{name}.{member}"
        container = _KINDS.get(kind)
        return DECODERS[kind](content) if container is None else container(self, content)

    def pairs(self, content: Any) -> list[tuple[object, object]]:
        return [(self.restored(key), self.restored(value)) for key, value in content]

    def items(self, content: Any) -> list[object]:
        return [self.restored(each) for each in content]

    def tensor(self, index: int) -> torch.Tensor:
        if index < 0:
            raise IndexError(index)
        return self._tensors[index]

    def tensor_with_grad(self, index: int) -> torch.Tensor:
        key = "tensor", index, True
        if key not in self._with_grad:
            self._with_grad[key] = self.tensor(index).detach().requires_grad_()
        return self._with_grad[key]

    def parameter(self, content: Any) -> torch.Tensor:
        index, requires_grad = content
        key = "parameter", index, bool(requires_grad)
        if key not in self._with_grad:
            self._with_grad[key] = torch.nn.Parameter(self.tensor(index), requires_grad=bool(requires_grad))
        return self._with_grad[key]

    def ndarray(self, content: Any) -> object:
        index, dtype, shape = content
        if self.tensor(index).is_meta:
            return np.broadcast_to(np.zeros((), number_dtype(dtype, more="SU")), shape)
        array = self.tensor(index).numpy().view(number_dtype(dtype, more="SU")).reshape(shape)
        return array.copy() if self._copy_arrays else array

    def default_dict(self, content: Any) -> object:
        factory, pairs = content
        return defaultdict(None if factory is None else FACTORIES[factory], self.pairs(pairs))

    def with_attributes(self, content: Any) -> object:
        node, pairs = content
        value: Any = self.restored(node)
        if type(value) not in (OrderedDict, Counter):
            raise TypeError(f"a {type(value).__name__} has no attributes")
        vars(value).update(self.pairs(pairs))
        return value

    def deque(self, content: Any) -> object:
        items, most = content
        return deque(self.items(items), most)

    def named_tuple(self, content: Any) -> object:
        module, name, fields, items = content
        if self._stand_ins:
            return tuple(self.items(items))
        # Not the class's own __new__, which is the script's code.
        return tuple.__new__(find_named_tuple(module, name, fields), self.items(items))


_KINDS: Final[dict[str, Callable[[_Values, Any], object]]] = {
    "dict": lambda values, pairs: dict(values.pairs(pairs)),
    "ordered": lambda values, pairs: OrderedDict(values.pairs(pairs)),
    "counter": lambda values, pairs: Counter(dict(values.pairs(pairs))),
    "defaultdict": _Values.default_dict,
    "with_attributes": _Values.with_attributes,
    "tuple": lambda values, items: tuple(values.items(items)),
    "namedtuple": _Values.named_tuple,
    "deque": _Values.deque,
    "set": lambda values, items: set(values.items(items)),
    "frozenset": lambda values, items: frozenset(values.items(items)),
    "tensor": _Values.tensor,
    "tensor_with_grad": _Values.tensor_with_grad,
    "parameter": _Values.parameter,
    "ndarray": _Values.ndarray,
    # Written by versions that knew no type of array or scalar of numpy.
    "array": lambda values, index: values.tensor(index).numpy().copy(),
}
