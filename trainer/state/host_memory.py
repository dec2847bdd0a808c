"""The first tier: the last commit, in host memory.

Horovod's TorchState deep-copies everything at every commit. Here the memory of the commit before is written over, and
what only an optimizer's step can change is copied while the next forward and backward pass run, on a lane of its own
(`lanes`). `release()`, called before the optimizer steps, waits for what is left. A parameter that was changed in
between after all is found by its version counter: that commit is torn, which is an error, never a silent one.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.state.copies import CopyLane, Mark, Pair, copy_lane

Tree = Any
"""Nested dicts, lists and tuples of tensors and plain values."""

Path = tuple[object, ...]

VERIFIED_COMMITS: Final = 2
"""So many are compared byte by byte with what they were copied from before the optimizer steps: a script that changes
parameters past their version counter (`parameter.data`, an extension in C++) does so in each of its steps."""

_ATOMS: Final = (int, float, str, bytes, bool, type(None))


class TornCommitError(HvdElasticError):
    """A tensor was changed between `commit()` and the optimizer's step while it was still being copied."""

    exit_code = Exit.SCRIPT_MISTAKE


@dataclass(slots=True)
class _Copies:
    """Pairs of destination and source from one device, by when they are to be copied."""

    now: list[Pair] = field(default_factory=list)
    later: list[Pair] = field(default_factory=list)


@dataclass(slots=True)
class _Guarded:
    """A tensor that must not change before `release()`."""

    path: Path
    copy: torch.Tensor
    source: torch.Tensor
    version: int

    @classmethod
    def of(cls, path: Path, pair: Pair) -> "_Guarded":
        return cls(path, *pair, pair[1]._version)

    def is_torn(self, *, verify: bool) -> bool:
        return self.source._version != self.version or (verify and not _same_bytes(self.copy, self.source))


@dataclass(slots=True)
class _Running:
    """Copies that were started and may not be over."""

    guarded: list[_Guarded]
    marks: list[Mark]
    released: bool = False


class HostMemory:
    """Two sets of buffers: one holds the last commit, the other is used while somebody else still reads that one."""

    def __init__(self, *, overlap: bool = True) -> None:
        self._overlap = overlap
        self._sets: tuple[dict[Path, torch.Tensor], ...] = ({}, {})
        self._current = 0
        self._lent: int | None = None
        self._lanes: dict[torch.device, CopyLane] = {}
        self._running = _Running([], [], released=True)
        self._unverified = VERIFIED_COMMITS

    def save(self, tree: Tree, *, guarded: Callable[[torch.Tensor], bool], held: bool = False) -> Tree:
        """Copy `tree` and give the copy, whose tensors live in this memory and stay valid until the next save.

        Args:
            tree: what to copy.
            guarded: whether a tensor can change only after `release()`.
            held: whether what was lent is still being read; else all may be written over.
        """
        self.settle()
        if not held:
            self._lent = None
        elif self._lent is not None:
            self._current = 1 - self._lent
        self._running = _Running([], [])
        copies: dict[torch.device, _Copies] = {}
        result = self._mirror(tree, (), copies, guarded)
        for device, each in copies.items():
            self._start(self._lanes[device], each)
        return result

    def lend(self) -> None:
        """Somebody reads the present copy from now on: keep its buffers as they are while saves say `held`."""
        self._lent = self._current

    def release(self) -> None:
        """Guarded tensors are about to change: wait until they are copied. Raises TornCommitError."""
        running = self._running
        if running.released:
            return
        running.released = True
        verify = self._unverified > 0
        if verify:
            self._unverified -= 1
            for mark in running.marks:
                mark.wait()
        _refuse_torn([each for each in running.guarded if each.is_torn(verify=verify)])
        for mark in running.marks:
            mark.hold_back()

    def settle(self) -> None:
        """Wait until the copy can be read on the host. Raises TornCommitError."""
        self.release()
        for mark in self._running.marks:
            mark.wait()
        self._running = _Running([], [], released=True)

    @property
    def settled(self) -> bool:
        """Whether the copy can be read on the host now."""
        return all(mark.reached for mark in self._running.marks)

    def _mirror(
        self, node: Tree, path: Path, copies: dict[torch.device, _Copies], guarded: Callable[[torch.Tensor], bool]
    ) -> Tree:
        if isinstance(node, torch.Tensor):
            return self._tensor(node.detach(), path, copies, guarded)
        if isinstance(node, Mapping):
            return {key: self._mirror(value, (*path, key), copies, guarded) for key, value in node.items()}
        if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
            items = (self._mirror(value, (*path, index), copies, guarded) for index, value in enumerate(node))
            return list(items) if isinstance(node, list) else tuple(items)
        return node if isinstance(node, _ATOMS) else copy.deepcopy(node)

    def _tensor(
        self,
        source: torch.Tensor,
        path: Path,
        copies: dict[torch.device, _Copies],
        guarded: Callable[[torch.Tensor], bool],
    ) -> torch.Tensor:
        if source.layout is not torch.strided or source.is_quantized:
            return source.cpu().clone()
        pair = self._buffer(source, path), source
        mine = copies.setdefault(source.device, _Copies())
        if self._overlap and guarded(source):
            mine.later.append(pair)
            self._running.guarded.append(_Guarded.of(path, pair))
        else:
            mine.now.append(pair)
        return pair[0]

    def _buffer(self, source: torch.Tensor, path: Path) -> torch.Tensor:
        if source.device not in self._lanes:
            self._lanes[source.device] = copy_lane(source.device)
        buffers = self._sets[self._current]
        buffer = buffers.get(path)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = buffers[path] = self._lanes[source.device].buffer(source)
        return buffer

    def _start(self, lane: CopyLane, copies: _Copies) -> None:
        if copies.now:
            mark = lane.copy(copies.now)
            mark.hold_back()
            self._running.marks.append(mark)
        if copies.later:
            self._running.marks.append(lane.copy(copies.later))


def _same_bytes(copy: torch.Tensor, source: torch.Tensor) -> bool:
    """Bytes, because a NaN is not equal to itself."""
    plain = source.resolve_conj().resolve_neg().contiguous()
    ours, theirs = (each.view(-1).view(torch.uint8) for each in (copy.to(source.device), plain))
    return torch.equal(ours, theirs)


def _refuse_torn(torn: list[_Guarded]) -> None:
    if torn:
        name, more = ".".join(map(str, torn[0].path)), len(torn) - 1
        raise TornCommitError(
            f"{name}{f' (and {more} more)' if more else ''} was changed between commit() and the optimizer's step, "
            "while it was being copied. Change it before commit(), or give State(overlap=False)."
        )


def loaded(tree: Tree) -> Tree:
    """A copy whose tensors share no memory with `tree`: what is handed to an optimizer, which keeps what it is
    given.
    """
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    if isinstance(tree, Mapping):
        return {key: loaded(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [loaded(value) for value in tree]
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(loaded(value) for value in tree)
    return tree if isinstance(tree, _ATOMS) else copy.deepcopy(tree)
