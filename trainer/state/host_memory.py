"""The first tier: the last commit, in host memory.

Horovod's TorchState deep-copies everything at every commit. Here a commit overwrites the memory of an earlier one.
Tensors that change only in an optimizer's step are copied while the next forward and backward pass run, on a stream of
their own (`copies`). `fence()`, called before the optimizer steps, waits for the copies that are not done. If a
parameter was changed in between all the same, its version counter shows it: the commit is torn, which is an error.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.state.copies import CopyEvent, CopyStream, Pair, copy_stream

Tree = Any
"""Nested dicts, lists and tuples of tensors and plain values."""

Path = tuple[object, ...]

VERIFIED_COMMITS: Final = 2
"""The first commits are compared byte by byte with their sources before the optimizer steps. A script that changes
parameters without touching their version counter (`parameter.data`, a C++ extension) does so in every step."""

_IMMUTABLE: Final = (int, float, str, bytes, bool, type(None))


class TornCommitError(HvdElasticError):
    """A tensor was changed between `commit()` and the optimizer's step while it was still being copied."""

    exit_code = Exit.SCRIPT_MISTAKE


@dataclass(slots=True)
class _Copies:
    """Pairs of destination and source on one device, by when they are copied."""

    now: list[Pair] = field(default_factory=list)
    later: list[Pair] = field(default_factory=list)


@dataclass(slots=True)
class _DeferredCopy:
    """A tensor that must not change before `fence()`."""

    path: Path
    copy: torch.Tensor
    source: torch.Tensor
    version: int

    @classmethod
    def of(cls, path: Path, pair: Pair) -> "_DeferredCopy":
        return cls(path, *pair, pair[1]._version)

    def is_torn(self, *, verify: bool) -> bool:
        return self.source._version != self.version or (verify and not _same_bytes(self.copy, self.source))


@dataclass(slots=True)
class _InFlight:
    """Copies that were started and may not be done."""

    deferred: list[_DeferredCopy]
    events: list[CopyEvent]
    fenced: bool = False


class HostMemory:
    """Two sets of buffers: one holds the last commit; the other is used while a durable save still reads the first."""

    def __init__(self, *, overlap: bool = True) -> None:
        self._overlap = overlap
        self._buffer_sets: tuple[dict[Path, torch.Tensor], ...] = ({}, {})
        self._current = 0
        self._retained: int | None = None
        self._streams: dict[torch.device, CopyStream] = {}
        self._in_flight = _InFlight([], [], fenced=True)
        self._unverified = VERIFIED_COMMITS

    def save(self, tree: Tree, *, deferrable: Callable[[torch.Tensor], bool], retained: bool = False) -> Tree:
        """Copy `tree` and return the copy. Its tensors live in this memory and stay valid until the next save.

        Args:
            tree: what to copy.
            deferrable: whether a tensor changes only after `fence()`, so that it may be copied in the background.
            retained: the buffers of the last `retain()` are still being read; otherwise all buffers may be overwritten.
        """
        self.wait()
        if not retained:
            self._retained = None
        elif self._retained is not None:
            self._current = 1 - self._retained
        self._in_flight = _InFlight([], [])
        copies: dict[torch.device, _Copies] = {}
        result = self._copy_tree(tree, (), copies, deferrable)
        for device, of_device in copies.items():
            self._start(self._streams[device], of_device)
        return result

    def retain(self) -> None:
        """Keep the buffers of the present copy unchanged while saves are called with `retained=True`."""
        self._retained = self._current

    def fence(self) -> None:
        """Order the copies of deferrable tensors before what changes them next. Raises TornCommitError."""
        running = self._in_flight
        if running.fenced:
            return
        running.fenced = True
        verify = self._unverified > 0
        if verify:
            self._unverified -= 1
            for event in running.events:
                event.wait()
        _raise_if_torn([each for each in running.deferred if each.is_torn(verify=verify)])
        for event in running.events:
            event.fence()

    def wait(self) -> None:
        """Block until the copy can be read on the host. Raises TornCommitError."""
        self.fence()
        for event in self._in_flight.events:
            event.wait()
        self._in_flight = _InFlight([], [], fenced=True)

    @property
    def done(self) -> bool:
        """Whether the copy can be read on the host now."""
        return all(event.done for event in self._in_flight.events)

    def _copy_tree(
        self, node: Tree, path: Path, copies: dict[torch.device, _Copies], deferrable: Callable[[torch.Tensor], bool]
    ) -> Tree:
        if isinstance(node, torch.Tensor):
            return self._tensor(node.detach(), path, copies, deferrable)
        if isinstance(node, Mapping):
            return {key: self._copy_tree(value, (*path, key), copies, deferrable) for key, value in node.items()}
        if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
            items = (self._copy_tree(value, (*path, index), copies, deferrable) for index, value in enumerate(node))
            return list(items) if isinstance(node, list) else tuple(items)
        return node if isinstance(node, _IMMUTABLE) else copy.deepcopy(node)

    def _tensor(
        self,
        source: torch.Tensor,
        path: Path,
        copies: dict[torch.device, _Copies],
        deferrable: Callable[[torch.Tensor], bool],
    ) -> torch.Tensor:
        if source.layout is not torch.strided or source.is_quantized:
            return source.cpu().clone()
        pair = self._buffer(source, path), source
        of_device = copies.setdefault(source.device, _Copies())
        if self._overlap and deferrable(source):
            of_device.later.append(pair)
            self._in_flight.deferred.append(_DeferredCopy.of(path, pair))
        else:
            of_device.now.append(pair)
        return pair[0]

    def _buffer(self, source: torch.Tensor, path: Path) -> torch.Tensor:
        if source.device not in self._streams:
            self._streams[source.device] = copy_stream(source.device)
        buffers = self._buffer_sets[self._current]
        buffer = buffers.get(path)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = buffers[path] = self._streams[source.device].buffer(source)
        return buffer

    def _start(self, stream: CopyStream, copies: _Copies) -> None:
        if copies.now:
            event = stream.copy(copies.now)
            event.fence()
            self._in_flight.events.append(event)
        if copies.later:
            self._in_flight.events.append(stream.copy(copies.later))


def _same_bytes(copy: torch.Tensor, source: torch.Tensor) -> bool:
    """Compare bytes, because a NaN is not equal to itself."""
    plain = source.resolve_conj().resolve_neg().contiguous()
    copied, original = (each.view(-1).view(torch.uint8) for each in (copy.to(source.device), plain))
    return torch.equal(copied, original)


def _raise_if_torn(torn: list[_DeferredCopy]) -> None:
    if torn:
        name, more = ".".join(map(str, torn[0].path)), len(torn) - 1
        raise TornCommitError(
            f"{name}{f' (and {more} more)' if more else ''} was changed between commit() and the optimizer's step, "
            "while it was being copied. Change it before commit(), or use State(overlap=False)."
        )


def clone_tree(tree: Tree) -> Tree:
    """Return a copy whose tensors share no memory with `tree`, for an optimizer, which keeps the tensors it loads."""
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    if isinstance(tree, Mapping):
        return {key: clone_tree(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [clone_tree(value) for value in tree]
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(clone_tree(value) for value in tree)
    return tree if isinstance(tree, _IMMUTABLE) else copy.deepcopy(tree)
