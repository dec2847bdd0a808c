"""Where copies into host memory run beside the computation: threads for tensors on the host, a stream for a GPU's.

`trainer.state.host_memory` decides what is copied when. It asks the same of either lane, so the logic that a CPU runs through is
the one that a GPU runs through; what differs is these few lines.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.graph import increment_version

Pair = tuple[torch.Tensor, torch.Tensor]
"""Destination, in contiguous host memory, and source."""

SYNCHRONOUS_BYTES: Final = 4 << 20
"""Below this a copy in another thread costs more than it saves."""

THREADS: Final = 2
"""One thread does not fill a memory controller: two copy 1.6 times as fast (benchmarks.trainer_commit)."""

BLOCK_BYTES: Final = 4 << 20
"""What a thread takes at once, so that one large tensor is shared out too."""


class Mark(Protocol):
    """A point of a lane: the copies that were given to it until then."""

    def hold_back(self) -> None:
        """Have all that is computed from now on come after the copies: the sources may change then."""

    def wait(self) -> None:
        """Return when the destinations can be read on the host."""

    @property
    def reached(self) -> bool:
        """Whether they can be read now."""


class CopyLane(Protocol):
    """Copies from one device."""

    def buffer(self, source: torch.Tensor) -> torch.Tensor:
        """Give host memory that this lane copies to quickly, contiguous, of the source's shape and type."""

    def copy(self, pairs: Sequence[Pair]) -> Mark:
        """Copy what the sources hold after all that was computed so far."""


def copy_lane(device: torch.device) -> CopyLane:
    """Give the lane for tensors on `device`."""
    return StreamLane(device) if device.type == "cuda" else ThreadLane()


class ThreadLane:
    """On the host: computing is over when a call returns, so only `hold_back` ever makes anybody wait."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def buffer(self, source: torch.Tensor) -> torch.Tensor:
        """See Lane."""
        return torch.empty(source.shape, dtype=source.dtype)

    def copy(self, pairs: Sequence[Pair]) -> "Finished":
        """See Lane. Little is copied at once, in the calling thread."""
        # numpy writes past the version counter, by which a checkpoint knows that its buffer was written over.
        increment_version([destination for destination, _ in pairs])
        if sum(source.nbytes for _, source in pairs) < SYNCHRONOUS_BYTES:
            _copy_small(pairs)
            return Finished(())
        self._executor = self._executor or ThreadPoolExecutor(THREADS, thread_name_prefix="commit")
        large = [pair for pair in pairs if _is_large(pair)]
        small = [pair for pair in pairs if not _is_large(pair)]
        blocks = _blocks(large)
        shared = iter(list(blocks))  # `next` of a list's iterator is atomic: the threads take turns
        futures = [self._executor.submit(_copy_small, small)]
        futures += [self._executor.submit(_copy_blocks, shared) for _ in range(THREADS)]
        return Finished(tuple(futures))


class Finished:
    """Of a ThreadLane: when these calls are over."""

    def __init__(self, futures: "tuple[Future[None], ...]") -> None:
        self._futures = futures

    def hold_back(self) -> None:
        """See Mark; raises what a copy raised."""
        for future in self._futures:
            future.result()

    def wait(self) -> None:
        """See Mark."""
        wait(self._futures)

    @property
    def reached(self) -> bool:
        """See Mark."""
        return all(future.done() for future in self._futures)


class StreamLane:
    """From a GPU, into pinned memory: nothing here but `Mark.wait` ever blocks the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def buffer(self, source: torch.Tensor) -> torch.Tensor:
        """See Lane."""
        return torch.empty(source.shape, dtype=source.dtype, pin_memory=True)

    def copy(self, pairs: Sequence[Pair]) -> "Recorded":
        """See Lane."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream), torch.no_grad():
            for destination, source in pairs:
                destination.copy_(source, non_blocking=True)
            event = self._stream.record_event()
        for _, source in pairs:
            source.record_stream(self._stream)
        return Recorded(event, self._device)


class Recorded:
    """Of a StreamLane: an event behind the copies."""

    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        self._event, self._device = event, device

    def hold_back(self) -> None:
        """See Mark: the GPU waits, the host does not."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def wait(self) -> None:
        """See Mark."""
        self._event.synchronize()

    @property
    def reached(self) -> bool:
        """See Mark."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]


def _is_large(pair: Pair) -> bool:
    source = pair[1]
    plain = source.is_contiguous() and not source.is_conj() and not source.is_neg()
    return plain and source.nbytes >= BLOCK_BYTES // 4


def _copy_small(pairs: Sequence[Pair]) -> None:
    """One call, so that a thread takes the interpreter's lock once and not for every tensor."""
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def _blocks(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, int]]:
    for pair in pairs:
        for start in range(0, pair[1].nbytes, BLOCK_BYTES):
            yield pair, start


def _copy_blocks(blocks: Iterator[tuple[Pair, int]]) -> None:
    """By memcpy(3), which writes past the cache and so needs a third less of the memory's bandwidth than torch."""
    for (destination, source), start in blocks:
        piece = slice(start, start + BLOCK_BYTES)
        np.copyto(_bytes(destination)[piece], _bytes(source)[piece])


def _bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    return tensor.detach().view(-1).view(torch.uint8).numpy()
