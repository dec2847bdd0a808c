"""In which collective operation this process waits, and since when.

Every wait of Horovod for PyTorch, be it in `allreduce`, in `barrier` or in the optimizer's `synchronize`, is one
function of its C++ extension: `horovod_torch_wait_and_clear(handle)` (horovod 0.28.1, `horovod/torch/mpi_ops.py`,
`synchronize`). It is wrapped, and so are the few functions that return a handle, for the operation's name. That is some
half a microsecond for each, and sends nothing. Over torch.distributed those who wait say so themselves.
"""

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.trainer.collectives.engine import IS_TORCH

NAMED: Final = {
    "_allreduce_async": "allreduce",
    "_grouped_allreduce_async": "grouped_allreduce",
    "_allgather_async": "allgather",
    "_grouped_allgather_async": "grouped_allgather",
    "_broadcast_async": "broadcast",
    "_alltoall_async": "alltoall",
    "_reducescatter_async": "reducescatter",
    "_grouped_reducescatter_async": "grouped_reducescatter",
}
"""Functions of mpi_ops that return a handle and take a name, and what the operation is called."""

_UNNAMED: Final = {"horovod_torch_join": "join", "horovod_torch_barrier": "barrier"}
"""The same of its C++ extension, without a name."""

_NO_HANDLE: Final = -1
"""In place of a handle, of which Horovod's are not negative."""

OF_SET: Final = "of process set"
"""Is in the words of an operation over some of the ranks."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupation:
    """What the process does at a time: it waits in one operation, or computes between two."""

    number: int
    """Grows with every operation that begins or ends, and with every commit: the same number is the same spell."""
    since: float
    """By a clock that does not jump, in seconds."""
    operation: str
    """`allreduce grad.layer1`; empty: it computes."""


class WaitedTime:
    """How long the training thread has waited in collective operations, all together: over either engine."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


WAITED: Final = WaitedTime()
"""That of this process."""


class CollectiveCalls:
    """The operations of one process. One thread calls them; any thread may ask for `occupation`."""

    def __init__(
        self,
        *,
        failed: Callable[[RuntimeError], object] = lambda _: None,
        clock: Clock = time.monotonic,
        waited: WaitedTime = WAITED,
    ) -> None:
        """`failed`: told of each of Horovod's operations that fails, in the thread that called it."""
        self.failed, self._clock, self._waited = failed, clock, waited
        self._names: dict[int, tuple[str, str | None]] = {}
        """Kind and name by handle, of the operations that have begun and are not waited for yet."""
        self._number, self._since = 0, clock()
        self._handle: int | None = None

    def install(self) -> None:
        """Wrap Horovod's functions. A second call does nothing, nor the first over torch.distributed."""
        if IS_TORCH:
            return
        from horovod.torch import mpi_ops

        library = mpi_ops.mpi_lib
        if getattr(library.horovod_torch_wait_and_clear, "watched", False):
            return
        library.horovod_torch_wait_and_clear = self.watched(library.horovod_torch_wait_and_clear)
        for function, kind in NAMED.items():
            setattr(mpi_ops, function, self.named(getattr(mpi_ops, function), kind))
        for function, kind in _UNNAMED.items():
            setattr(library, function, self.unnamed(getattr(library, function), kind))

    def restart(self) -> None:
        """A new world: handles are counted anew, and what was waited for is over."""
        self._names.clear()
        self._handle = None
        self.mark()

    def mark(self) -> None:
        """Something got done, such as a commit: the present spell of computing begins now."""
        self._since = self._clock()
        self._number += 1

    def occupation(self) -> Occupation:
        while True:
            number, since, handle = self._number, self._since, self._handle
            kind, name = self._names.get(handle, ("an operation", "")) if handle is not None else ("", "")
            if number == self._number:
                break
        return Occupation(number=number, since=since, operation=_words(handle, kind, name))

    def begun(self) -> frozenset[str]:
        """The operations that this process has asked for and has not waited for to their end, in the same words."""
        return frozenset(_words(handle, kind, name) for handle, (kind, name) in list(self._names.items()))

    @contextlib.contextmanager
    def waiting(self, operation: str) -> Iterator[None]:
        """Note that the block waits in an operation that has no handle; within another one, that is what counts."""
        if self._handle is not None:
            yield
            return
        self.wait_begins(operation)
        try:
            yield
        finally:
            self.wait_ends()

    def wait_begins(self, operation: str) -> None:
        """Note that the thread waits from now on in an operation that has no handle. Another such wait is over."""
        self._names[_NO_HANDLE] = operation, ""
        self._begin_wait(_NO_HANDLE)

    def wait_ends(self) -> None:
        """It waits no more; a second call does nothing."""
        if self._handle == _NO_HANDLE:
            self._end_wait(_NO_HANDLE)

    def _begin_wait(self, handle: int) -> None:
        self._handle, self._since = handle, self._clock()
        self._number += 1

    def _end_wait(self, handle: int) -> None:
        self._names.pop(handle, None)
        began, ended = self._since, self._clock()
        self._handle, self._since = None, ended
        self._waited.seconds += ended - began
        self._number += 1

    def watched(self, wait: Callable[[int], None]) -> Callable[[int], None]:
        """`wait`, which blocks until the operation with a handle is done, with a note of when it begins and ends."""

        @functools.wraps(wait)
        def waits(handle: int) -> None:
            self._begin_wait(handle)
            try:
                wait(handle)
            except RuntimeError as error:
                self.failed(error)
                raise
            finally:
                self._end_wait(handle)

        waits.watched = True  # type: ignore[attr-defined]
        return waits

    def named(self, begin: Callable[..., int], kind: str) -> Callable[..., int]:
        """`begin`, which begins an operation and has a parameter `name`, with a note of it."""
        parameters, names = list(inspect.signature(begin).parameters), self._names
        place, set_place = parameters.index("name"), parameters.index("process_set")

        @functools.wraps(begin)
        def begins(*args: Any, **kwargs: Any) -> int:
            try:
                handle = begin(*args, **kwargs)
            except RuntimeError as error:
                self.failed(error)
                raise
            name = args[place] if len(args) > place else kwargs.get("name")
            members = args[set_place] if len(args) > set_place else kwargs["process_set"]
            names[handle] = _over(kind, members.process_set_id), name
            return handle

        return begins

    def unnamed(self, begin: Callable[..., int], kind: str) -> Callable[..., int]:
        """The same for an operation without a name."""
        names = self._names

        @functools.wraps(begin)
        def begins(*args: Any) -> int:
            handle = begin(*args)
            names[handle] = _over(kind, args[0]) if kind == "barrier" else kind, ""
            return handle

        return begins


def _over(kind: str, process_set: int) -> str:
    return f"{kind} {OF_SET} {process_set}:" if process_set else kind


def _words(handle: int | None, kind: str, name: str | None) -> str:
    return f"{kind} noname.{handle}" if name is None else f"{kind} {name}".rstrip()


THIS_PROCESS: Final = CollectiveCalls()
