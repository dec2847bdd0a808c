"""What a script asks of Horovod between `hvd.init()` and its training function, and what a newcomer gets for it.

Plain Horovod scripts broadcast there: parameters, a vocabulary, the groups of an optimizer. A process that joins a job
in training would be alone in it. So each process keeps what these operations return, and one that joins is given that
as its world forms (`meet`), and waits for nobody:

* An operation that returns values returns those of the first world. They are matched by their order.
* A barrier, and `broadcast_parameters` of what the State brings, do nothing. What it does not bring is given, too.
* Where ranks get unlike values (`alltoall`), or more than can be kept, the script is refused in the first world.

Operations over a process set of the script's own are left alone.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hvd_elastic.trainer.collectives.collective_calls import NAMED
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

LIMIT_BYTES: Final = 64 << 20
"""Of the values that a process keeps, in host memory and for its whole life. A vocabulary has some megabytes."""

_UNLIKE: Final = frozenset({"alltoall", "reducescatter", "grouped_reducescatter"})
"""Operations that return other values on each rank."""

_WAY_OUT: Final = "Load it on each rank from a file, make it a value of the State, or send it in the training function"

Refuse = Callable[[str], NoReturn]
"""Ends the process, whose script is wrong, with a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupResult:
    """What one operation has returned."""

    kind: str
    name: str
    """Empty if the script gives none."""
    size: int
    """Of the world that has returned it."""
    values: "tuple[torch.Tensor, ...] | None" = None
    """On the host. None: nobody has waited for it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class SetupHistory:
    """What the operations of the first world have returned, in the order of their calls."""

    results: list[SetupResult] = field(default_factory=list)
    parameters: "list[torch.Tensor | None]" = field(default_factory=list)
    """Of `broadcast_parameters`, tensor by tensor. None: the State brings it."""

    @property
    def has_values(self) -> bool:
        """Whether one that joins would miss anything of it."""
        return bool(self.results) or any(value is not None for value in self.parameters)


class SetupCalls:
    """Those of one process. One thread calls Horovod."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.has_met = False
        """Whether `meet` has been called."""
        self._limit, self._bytes = limit_bytes, 0
        self._history = SetupHistory()
        self._joins = self._is_over = False
        """Whether the history is that of others; whether this process has come to its training function."""
        self._next = self._next_parameter = 0
        """Of the history's lists, in a process that joins."""
        self._sent: list[torch.Tensor] = []
        """By `broadcast_parameters`; in a process that joins those that it has kept as they were."""
        self._waited_for: dict[int, int] = {}
        """Numbers of results by handle."""
        self._handle = 0
        """The last that was made up. Horovod's own are not negative."""
        self._handles: MutableMapping[int, Any] = {}
        self._world_size: Callable[[], int] = int
        self._put_back: Callable[[], None] | None = None
        self._refuse: Refuse | None = None

    # --- A process's way ---------------------------------------------------------------------------------------------

    def meet(self, world: TrainingWorld) -> None:
        """Give those that join what they missed. A collective operation, the first of each world.

        Raises:
            HorovodInternalError: a member of the world is lost.
        """
        self._stop()
        if world.size() == 1:
            self.has_met = True
            return
        import torch

        teller = world.rank() if self._is_over else -1
        told = torch.tensor([teller, not self._is_over, self._history.has_values], dtype=torch.int64)
        told = world.allreduce(told, op=ReduceOp.MAX, name="hvd_elastic.setup")
        self.has_met = True
        teller, has_newcomer, has_values = told.tolist()
        if teller < 0 or not has_newcomer:
            return
        history: SetupHistory | None = SetupHistory()
        if has_values:  # else the others need not wait for it
            mine = self._history if world.rank() == teller else None
            history = world.broadcast_object(mine, root=teller, name="hvd_elastic.history")
        if not self._is_over and history is not None:
            for tensor, value in zip(self._sent, history.parameters, strict=False):  # by a standby, in a world of one
                if value is not None:
                    self._write([tensor], [value], "hvd.broadcast_parameters")
            self._sent.clear()
            self._history, self._joins = history, True

    def begin(self, refuse: Refuse) -> None:
        """Replace Horovod's functions until `end`: keep what they return, or return what is known."""
        if IS_TORCH:  # a script calls nothing of the kind before its training function
            return
        from horovod.torch import functions, mpi_ops

        library = mpi_ops.mpi_lib
        self._refuse, self._handles, self._world_size = refuse, mpi_ops._handle_map, mpi_ops.size
        replaced: list[tuple[Any, str, Any]] = [
            (library, "horovod_torch_wait_and_clear", self.waiting(library.horovod_torch_wait_and_clear)),
            (library, "horovod_torch_poll", self.polling(library.horovod_torch_poll)),
            (library, "horovod_torch_barrier", self.barrier(library.horovod_torch_barrier)),
            (functions, "broadcast_async_", self.parameters(functions.broadcast_async_)),
            *((mpi_ops, name, self.named(getattr(mpi_ops, name), kind)) for name, kind in NAMED.items()),
        ]
        if self._joins:
            # `broadcast_object` and `allgather_object` ask for them: the root is another, and so many have given.
            replaced += [(functions, "rank", lambda: -1), (functions, "size", self._size_of_last)]
        stock = [(module, name, getattr(module, name)) for module, name, _ in replaced]

        def put_back() -> None:
            for module, name, function in stock:
                setattr(module, name, function)

        for module, name, function in replaced:
            setattr(module, name, function)
        self._put_back = put_back

    def end(self, brought: "Callable[[], Iterable[torch.Tensor]]") -> None:
        """Put Horovod's functions back: the script has come to its training function. A second call does nothing.

        `brought`: the tensors of its State.
        """
        self._stop()
        if self._is_over:
            return
        self._is_over = True
        state = {_storage(tensor) for tensor in brought()} if self._sent else set()
        if self._joins:
            if any(_storage(tensor) not in state for tensor in self._sent):
                self._wrong(
                    "hvd.broadcast_parameters of what is not in the State, and what those that began never sent"
                )
        else:
            kept = [None if _storage(tensor) in state else _copy(tensor) for tensor in self._sent]
            self._history.parameters[:] = kept
            if (size := sum(tensor.nbytes for tensor in kept if tensor is not None)) > self._limit:
                logger.warning(
                    "hvd.broadcast_parameters has sent %d MiB that are not part of the State: each process keeps them "
                    "for those that join",
                    size >> 20,
                )
        self._sent.clear()

    # --- In place of Horovod's functions -----------------------------------------------------------------------------

    def named(self, begin: Callable[..., int], kind: str) -> Callable[..., int]:
        """In place of `begin`, which begins an operation of this kind."""
        signature = inspect.signature(begin)

        @functools.wraps(begin)
        def begins(*args: Any, **kwargs: Any) -> int:
            given = signature.bind(*args, **kwargs).arguments
            if given["process_set"].process_set_id:
                return begin(*args, **kwargs)
            if kind in _UNLIKE:
                self._wrong(f"hvd.{kind} before the training function: a process that joins later cannot get it")
            outputs = given["outputs"] if "outputs" in given else (given["output"],)
            name = given["name"] or ""
            if self._joins:
                self._answer(kind, name, outputs)
                return self._made_up(tuple(outputs) if "outputs" in given else outputs[0])
            handle = begin(*args, **kwargs)
            self._waited_for[handle] = len(self._history.results)
            self._history.results.append(SetupResult(kind=kind, name=name, size=self._world_size()))
            return handle

        return begins

    def waiting(self, wait: Callable[[int], None]) -> Callable[[int], None]:
        """In place of `wait`, which waits for the operation with a handle."""

        @functools.wraps(wait)
        def waits(handle: int) -> None:
            if handle >= 0:
                wait(handle)
            if handle in self._waited_for:
                output = self._handles[handle][-1]
                self._keep(self._waited_for.pop(handle), output if isinstance(output, tuple) else (output,))

        return waits

    def polling(self, poll: Callable[[int], int]) -> Callable[[int], int]:
        """In place of `poll`, which says whether the operation with a handle is done."""
        return lambda handle: 1 if handle < 0 else poll(handle)

    def barrier(self, begin: Callable[[int], int]) -> Callable[[int], int]:
        """In place of `begin`, which begins a barrier of a process set."""
        return lambda process_set: begin(process_set) if process_set or not self._joins else self._made_up(None)

    def parameters(self, begin: Callable[..., int]) -> Callable[..., int]:
        """In place of `begin`, with which `broadcast_parameters` begins to broadcast one tensor."""

        @functools.wraps(begin)
        def begins(tensor: "torch.Tensor", root_rank: int, name: str | None = None) -> int:
            if not self._joins:
                self._sent.append(tensor)
                handle = begin(tensor, root_rank, name)  # which is `named`
                del self._history.results[self._waited_for.pop(handle)]
                return handle
            number, known = self._next_parameter, self._history.parameters
            self._next_parameter += 1
            value = known[number] if number < len(known) else None
            if value is None:
                self._sent.append(tensor)
            else:
                self._write([tensor], [value], "hvd.broadcast_parameters")
            return self._made_up(tensor)

        return begins

    # --- Internal ----------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._put_back is not None:
            self._put_back()
            self._put_back = None

    def _keep(self, number: int, outputs: "Sequence[torch.Tensor]") -> None:
        result = self._history.results[number]
        self._bytes += sum(output.nbytes for output in outputs)
        if self._bytes > self._limit:
            self._wrong(
                f"what ranks send each other before the training function is kept for processes that join later, "
                f"{self._limit >> 20} MiB at most, and {result} is too large"
            )
        self._history.results[number] = replace(result, values=tuple(map(_copy, outputs)))

    def _answer(self, kind: str, name: str, outputs: "Sequence[torch.Tensor]") -> None:
        """Write into `outputs` what the first world has got."""
        if not self._next:
            logger.info("joins a job in training: what it asks for before is answered as it was in the first world")
        words, number = f"{kind} {name}".rstrip(), self._next
        self._next += 1
        known = self._history.results[number] if number < len(self._history.results) else None
        if known is None or known.kind != kind or known.values is None:
            self._wrong(
                f"this process joins a job in training and calls {words} before its training function, where those "
                f"that began had called {known or 'nothing more'}: all must call the same there, whatever their rank "
                "and hvd.size()"
            )
        self._write(outputs, known.values, words)

    def _write(self, outputs: "Sequence[torch.Tensor]", values: "Sequence[torch.Tensor]", words: str) -> None:
        import torch

        if words.startswith(("allgather", "grouped_allgather")):
            for output, value in zip(outputs, values, strict=False):
                output.resize_(value.shape)
        if [output.shape for output in outputs] != [value.shape for value in values]:
            self._wrong(
                f"this process joins a job in training and calls {words} before its training function with another "
                "shape than those that began"
            )
        with torch.no_grad():
            for output, value in zip(outputs, values, strict=True):
                output.copy_(value)

    def _made_up(self, output: object) -> int:
        """Return a handle for an operation that is done, with its output."""
        self._handle -= 1
        self._handles[self._handle] = (None, output)
        return self._handle

    def _size_of_last(self) -> int:
        """Return how many ranks have given to the operation that was answered last."""
        return self._history.results[self._next - 1].size

    def _wrong(self, what: str) -> NoReturn:
        assert self._refuse is not None
        self._refuse(f"{what}. {_WAY_OUT}")


def _copy(tensor: "torch.Tensor") -> "torch.Tensor":
    return tensor.detach().to("cpu", copy=True)


def _storage(tensor: "torch.Tensor") -> int:
    """Name the memory that a tensor shares with its views; for a tensor without any, itself."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):
        return id(tensor)


THIS_PROCESS: Final = SetupCalls()
"""A process has one way into training."""
