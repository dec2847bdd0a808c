"""The serialized form of a snapshot: a JSON tree and raw tensors. It contains no code, so reading one runs none.

Layout, all integers little-endian::

    8 bytes   MAGIC
    8 bytes   length of the tree
    tree      JSON: {"values": VALUE, "tensors": [{"dtype": "float32", "shape": [..], "offset": O}, ...]}
    tensors   at multiples of 64 from the start of the archive, row-major

VALUE is null, a boolean, a number or a string as in JSON, a list, or an object with one key: `dict` (pairs, so that
keys may be integers as in an optimizer's state), `tuple`, `set`, `bytes` (base64), `tensor` or `array` (an index).
"""

import json
import struct
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.capture import Capture

MAGIC: Final = b"HVDECKP1"
ALIGNMENT: Final = 64
HEAD_BYTES: Final = 16

Bytes = npt.NDArray[np.uint8]


def aligned(offset: int) -> int:
    """Return the next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Payload:
    """A capture as one sequence of bytes. It is never assembled in memory: parts are copied out of it on demand."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        tree = self._tree()
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
            dtype = str(tensor.dtype).removeprefix("torch.")
            table.append({"dtype": dtype, "shape": list(tensor.shape), "offset": offset})
            offset = aligned(offset + tensor.numel() * tensor.element_size())
        return json.dumps({"values": self.capture.values, "tensors": table}, separators=(",", ":")).encode()

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
    return tensor.reshape(-1).view(torch.uint8).numpy()


def restore(buffer: torch.Tensor) -> dict[str, object]:
    """Return the values of an archive. Its tensors are views of `buffer`, a tensor of uint8 in one dimension.

    Raises:
        CorruptError: it is not an archive, or its tree points outside of it.
    """
    try:
        length = _tree_length(buffer)
        tree = json.loads(buffer[HEAD_BYTES : HEAD_BYTES + length].numpy().tobytes())
        first = aligned(HEAD_BYTES + length)
        tensors = [_view(buffer, first, entry) for entry in tree["tensors"]]
        values = _restored(tree["values"], tensors)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError, RecursionError) as error:
        raise CorruptError(f"not an archive of this format: {error}") from error
    if not isinstance(values, dict):
        raise CorruptError("not an archive of this format: its root is not a dictionary")
    return values


def _tree_length(buffer: torch.Tensor) -> int:
    head = buffer[:HEAD_BYTES].numpy().tobytes()
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        raise ValueError("it does not begin with the archive's magic bytes")
    length: int = struct.unpack("<Q", head[len(MAGIC) :])[0]
    if length > buffer.numel() - HEAD_BYTES:
        raise ValueError("its tree is longer than the archive")
    return length


def _view(buffer: torch.Tensor, first: int, entry: Mapping[str, object]) -> torch.Tensor:
    dtype = getattr(torch, str(entry["dtype"]))
    shape, offset = entry["shape"], entry["offset"]
    if not isinstance(dtype, torch.dtype) or not isinstance(offset, int) or not isinstance(shape, list):
        raise TypeError(f"a tensor is described as {entry}")
    sizes = torch.Size(shape)
    start = first + offset
    end = start + sizes.numel() * dtype.itemsize
    if offset < 0 or end > max(buffer.numel(), start):
        raise ValueError(f"a tensor ends at {end} of {buffer.numel()} bytes")
    if start == end:
        return torch.empty(sizes, dtype=dtype)
    # Through numpy, each tensor has its own storage that starts at 0: torch.set_rng_state reads a view from the start
    # of its storage, and crashes.
    return torch.from_numpy(buffer[start:end].numpy()).view(dtype).view(sizes)


def _restored(value: object, tensors: list[torch.Tensor]) -> object:
    if isinstance(value, list):
        return [_restored(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    return _KINDS[kind](content, tensors)


_KINDS: Final[dict[str, Callable[[Any, list[torch.Tensor]], object]]] = {
    "tensor": lambda index, tensors: tensors[index],
    "array": lambda index, tensors: tensors[index].numpy().copy(),
    "dict": lambda pairs, tensors: {_restored(k, tensors): _restored(v, tensors) for k, v in pairs},
    "tuple": lambda items, tensors: tuple(_restored(v, tensors) for v in items),
    "set": lambda items, tensors: {_restored(v, tensors) for v in items},
    "bytes": lambda text, _: b64decode(text, validate=True),
}
