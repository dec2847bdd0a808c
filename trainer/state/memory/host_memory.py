"""The first tier: the last commit, in host memory.

Horovod's TorchState deep-copies everything at every commit. Here a commit is built in the memory of the commit before
the last, beside the last one, and takes its place by one assignment. So an error or a signal in the middle of `save()`
leaves the last commit as it was.

All is copied when `save()` returns, unless the script asks for overlap. Then tensors that change only in an optimizer's
step are copied while the next forward and backward pass run, on a stream of their own (`copies`). `fence()`, called
before the optimizer steps, waits for the copies that are not done. If a parameter was changed in between all the same,
its version counter shows it: the commit is torn, which is an error. A change past the version counter shows nowhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.state.memory.copies import CopyEvent, CopyStream, Pair, copy_stream
from hvd_elastic.trainer.state.state_tree import PLAIN_TENSOR, Path, TensorKind, Tree, is_dense, rebuild

VERIFIED_COMMITS: Final = 2
"""The first commits are compared byte by byte with their sources before the optimizer steps. A script that changes
parameters without touching their version counter (`parameter.data`, a C++ extension) in every step is found so."""


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

    deferred: list[_DeferredCopy] = field(default_factory=list)
    events: list[CopyEvent] = field(default_factory=list)
    fenced: bool = False


_Buffers = dict[Path, torch.Tensor]


@dataclass(slots=True)
class _Commit:
    """A copy of a tree, and the memory that it lives in."""

    tree: Tree = None
    buffers: _Buffers = field(default_factory=dict)
    kinds: dict[Path, TensorKind] = field(default_factory=dict)
    in_flight: _InFlight = field(default_factory=_InFlight)


class HostMemory:
    """The last commit, and memory for the next one. A third set of buffers is used while a durable save reads one."""

    def __init__(self, *, overlap: bool = False) -> None:
        """`overlap`: copy what is deferrable in the background. By default all is copied when `save()` returns."""
        self.overlap = overlap
        self._commit = _Commit()
        self._before = _Commit()
        """The commit before the last one, until its memory is used for the next one."""
        self._spare: _Buffers = {}
        self._retained: _Buffers | None = None
        self._streams: dict[torch.device, CopyStream] = {}
        self._unverified = VERIFIED_COMMITS

    @property
    def last(self) -> Tree:
        """The last commit, as a tree of the types that were saved, with tensors in host memory; None if there is none.

        Its tensors stay valid until the save after the next one.
        """
        return self._commit.tree

    @property
    def kept(self) -> tuple[Tree, ...]:
        """The last commit, and after it the one before, as long as its memory is not used for the next one."""
        return tuple(commit.tree for commit in (self._commit, self._before) if commit.tree is not None)

    def go_back(self) -> None:
        """Make the commit before the last one the last one. It is one of `kept`."""
        undone, self._commit, self._before = self._commit, self._before, _Commit()
        self._spare = {} if undone.buffers is self._retained else undone.buffers

    def forget(self) -> None:
        """Hold no commit. A durable save keeps the buffers that it reads."""
        self._commit, self._before, self._spare, self._retained = _Commit(), _Commit(), {}, None

    @property
    def typed(self) -> Tree:
        """The last commit, in the same memory, with parameters as such: the durable tier stores each as its type."""
        kinds = {path: kind for path, kind in self._commit.kinds.items() if kind.is_parameter or kind.requires_grad}
        if not kinds:
            return self._commit.tree
        on_host = {path: replace(kind, device="cpu") for path, kind in kinds.items()}
        return rebuild(self._commit.tree, lambda path, tensor: on_host.get(path, PLAIN_TENSOR).cast(tensor))

    @property
    def kinds(self) -> Mapping[Path, TensorKind]:
        """What the tensors of the last commit were, by path, where that is more than a tensor in host memory."""
        return self._commit.kinds

    def save(self, tree: Tree, *, deferrable: Callable[[torch.Tensor], bool], retained: bool = False) -> Tree:
        """Copy `tree`, make the copy the last commit, and return it.

        Args:
            tree: what to copy.
            deferrable: whether a tensor changes only after `fence()`, so that it may be copied in the background.
            retained: the buffers of the last `retain()` are still being read.
        """
        self.wait()
        self._before = _Commit()
        builder = _Builder(self._take_spare(retained=retained), self._streams, deferrable if self.overlap else _never)
        commit, before = builder.build(tree), self._commit
        self._commit, self._before = commit, before
        if before.buffers is not self._retained:
            self._spare = before.buffers
        return commit.tree

    def retain(self) -> None:
        """Keep the buffers of the present copy unchanged while saves are called with `retained=True`."""
        self._retained = self._commit.buffers

    def fence(self) -> None:
        """Order the copies of deferrable tensors before what changes them next. Raises TornCommitError."""
        running = self._commit.in_flight
        if running.fenced:
            return
        verify = self._unverified > 0 and bool(running.deferred)
        if verify:
            self._unverified -= 1
            for event in running.events:
                event.wait()
        torn = [each for each in running.deferred if each.is_torn(verify=verify)]
        if not torn:
            for event in running.events:
                event.fence()
        running.fenced = True
        _raise_if_torn(torn)

    def wait(self) -> None:
        """Block until the copy can be read on the host. Raises TornCommitError."""
        self.fence()
        for event in self._commit.in_flight.events:
            event.wait()
        self._commit.in_flight = _InFlight(fenced=True)

    @property
    def done(self) -> bool:
        """Whether the copy can be read on the host now."""
        return all(event.done for event in self._commit.in_flight.events)

    def _take_spare(self, *, retained: bool) -> _Buffers:
        """Return buffers that nothing reads. They are free for one attempt only: a copy may go on after an error."""
        spare, self._spare = self._spare, {}
        if not retained:
            free, self._retained = self._retained, None
            if free is not None and free is not self._commit.buffers:
                spare = spare or free
        return spare


class _Builder:
    """Builds one commit."""

    def __init__(
        self, spare: _Buffers, streams: dict[torch.device, CopyStream], deferrable: Callable[[torch.Tensor], bool]
    ) -> None:
        self._spare, self._streams, self._deferrable = spare, streams, deferrable
        self._commit = _Commit()
        self._copies: dict[torch.device, _Copies] = {}
        self._shared: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By address, a tensor and its copy."""

    def build(self, tree: Tree) -> _Commit:
        self._commit.tree = rebuild(tree, self._tensor)
        for device, copies in self._copies.items():
            self._start(self._streams[device], copies)
        return self._commit

    def _tensor(self, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        kind, source = TensorKind.of(tensor), tensor.detach() if tensor.requires_grad else tensor
        if kind is not PLAIN_TENSOR:
            self._commit.kinds[path] = kind
        if not is_dense(source):
            return source.cpu().clone()
        address = source.data_ptr()
        known, copied = self._shared.get(address, (None, None))
        if known is not None and copied is not None and _is_same(source, known):
            return copied
        copied = self._copy(path, source)
        self._shared[address] = source, copied
        return copied

    def _copy(self, path: Path, source: torch.Tensor) -> torch.Tensor:
        pair = self._buffer(path, source), source
        copies = self._copies.setdefault(source.device, _Copies())
        if self._deferrable(source):
            copies.later.append(pair)
            self._commit.in_flight.deferred.append(_DeferredCopy.of(path, pair))
        else:
            copies.now.append(pair)
        return pair[0]

    def _buffer(self, path: Path, source: torch.Tensor) -> torch.Tensor:
        if source.device not in self._streams:
            self._streams[source.device] = copy_stream(source.device)
        buffer = self._spare.get(path)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = self._streams[source.device].buffer(source)
        self._commit.buffers[path] = buffer
        return buffer

    def _start(self, stream: CopyStream, copies: _Copies) -> None:
        events = self._commit.in_flight.events
        if copies.now:
            event = stream.copy(copies.now)
            event.fence()
            events.append(event)
        if copies.later:
            events.append(stream.copy(copies.later))


def _never(_: torch.Tensor) -> bool:
    return False


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors at the same address are one, such as tied weights: they are copied once."""
    return (
        one.device == other.device
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
    )


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
            "while it was being copied. Change it before commit(), or leave out State(overlap=True)."
        )
