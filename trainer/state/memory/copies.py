"""Copies into host memory that run beside the computation: by threads for host tensors, on a CUDA stream for a GPU's.

`host_memory` decides what is copied and when. It uses both kinds of stream through one interface, so CPU and GPU run
the same logic; only the code here differs.
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
"""What a thread copies at once, so that several threads share one large tensor."""


class CopyEvent(Protocol):
    """A point in a copy stream, behind all copies that were queued before it; like a CUDA event."""

    def fence(self) -> None:
        """Order all later computation after the copies, so that it may change the sources."""

    def wait(self) -> None:
        """Block until the destinations can be read on the host."""

    @property
    def done(self) -> bool:
        """Whether the destinations can be read now."""


class CopyStream(Protocol):
    """A queue of copies from one device into host memory."""

    def buffer(self, source: torch.Tensor) -> torch.Tensor:
        """Return contiguous host memory of the source's shape and type, to which this stream copies fast."""

    def copy(self, pairs: Sequence[Pair]) -> CopyEvent:
        """Queue a copy of what the sources hold once the computation queued so far is done."""


def copy_stream(device: torch.device) -> CopyStream:
    """Return a stream for tensors on `device`."""
    return CudaCopyStream(device) if device.type == "cuda" else ThreadCopyStream()


class ThreadCopyStream:
    """For tensors on the host. A computation is complete when its call returns, so only `fence` ever waits."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def buffer(self, source: torch.Tensor) -> torch.Tensor:
        return torch.empty(source.shape, dtype=source.dtype)

    def copy(self, pairs: Sequence[Pair]) -> "ThreadCopyEvent":
        """See CopyStream. Below SYNCHRONOUS_BYTES the calling thread copies, before this returns."""
        # numpy bypasses the version counter, by which a checkpoint detects that its buffer was overwritten.
        increment_version([destination for destination, _ in pairs])
        if sum(source.nbytes for _, source in pairs) < SYNCHRONOUS_BYTES:
            _copy_small(pairs)
            return ThreadCopyEvent(())
        self._executor = self._executor or ThreadPoolExecutor(THREADS, thread_name_prefix="commit")
        large = [pair for pair in pairs if _is_large(pair)]
        small = [pair for pair in pairs if not _is_large(pair)]
        blocks = _blocks(large)
        shared = iter(list(blocks))  # `next` of a list's iterator is atomic: the threads take turns
        futures = [self._executor.submit(_copy_small, small)]
        futures += [self._executor.submit(_copy_blocks, shared) for _ in range(THREADS)]
        return ThreadCopyEvent(tuple(futures))


class ThreadCopyEvent:
    """The event of a ThreadCopyStream: done when these calls have returned."""

    def __init__(self, futures: "tuple[Future[None], ...]") -> None:
        self._futures = futures

    def fence(self) -> None:
        """See CopyEvent. Raises what a copy raised."""
        for future in self._futures:
            future.result()

    def wait(self) -> None:
        wait(self._futures)

    @property
    def done(self) -> bool:
        return all(future.done() for future in self._futures)


class CudaCopyStream:
    """From a GPU into pinned memory. Only `CopyEvent.wait` blocks the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def buffer(self, source: torch.Tensor) -> torch.Tensor:
        return torch.empty(source.shape, dtype=source.dtype, pin_memory=True)

    def copy(self, pairs: Sequence[Pair]) -> "CudaCopyEvent":
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for destination, source in pairs:
                # A conjugated or negated view is made plain on the GPU: torch would do it to the destination on the
                # host, as soon as the copy is queued (`copy_kernel_cuda` in its aten/src/ATen/native/cuda/Copy.cu).
                destination.copy_(source.resolve_conj().resolve_neg(), non_blocking=True)
            event = self._stream.record_event()
        for _, source in pairs:
            source.record_stream(self._stream)
        return CudaCopyEvent(event, self._device)


class CudaCopyEvent:
    """The event of a CudaCopyStream: a CUDA event behind the copies."""

    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        self._event, self._device = event, device

    def fence(self) -> None:
        """See CopyEvent. The GPU waits, the host does not."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def wait(self) -> None:
        self._event.synchronize()

    @property
    def done(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]


def _is_large(pair: Pair) -> bool:
    source = pair[1]
    plain = source.is_contiguous() and not source.is_conj() and not source.is_neg()
    return plain and source.nbytes >= BLOCK_BYTES // 4


def _copy_small(pairs: Sequence[Pair]) -> None:
    """Copy in one call, so that a thread takes the interpreter lock once and not for each tensor.

    None of the tensors requires a gradient, so `no_grad` is not needed: a signal at its end would leave it on.
    """
    if pairs:
        torch._foreach_copy_([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def _blocks(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, int]]:
    for pair in pairs:
        for start in range(0, pair[1].nbytes, BLOCK_BYTES):
            yield pair, start


def _copy_blocks(blocks: Iterator[tuple[Pair, int]]) -> None:
    """Copy by memcpy(3), which bypasses the cache and so needs a third less memory bandwidth than torch."""
    for (destination, source), start in blocks:
        piece = slice(start, start + BLOCK_BYTES)
        np.copyto(_bytes(destination)[piece], _bytes(source)[piece])


def _bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    return tensor.detach().view(-1).view(torch.uint8).numpy()
