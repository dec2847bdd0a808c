"""What a script asks of the other ranks between `init` and its training function, and what a newcomer gets for it.

Plain scripts broadcast there: parameters, a vocabulary, the groups of an optimizer. A process that joins a job in
training would be alone in it. So each process keeps what these operations return, and one that joins is given that
as its world forms (`meet`), and waits for nobody:

* An operation that returns values returns those of the first world. They are matched by their order.
* A barrier, and a broadcast of what the State brings, do nothing. What it does not bring is given, too.
* Where ranks get unlike values (`alltoall`), or more than can be kept, the script is refused in the first world.

Operations over some ranks alone are left as they are. The engine's functions: `horovod_operations.py`,
`torch_operations.py`.
"""

import contextlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")

LIMIT_BYTES: Final = 64 << 20
"""Of the values that a process keeps, in host memory and for its whole life. A vocabulary has some megabytes."""

_WAY_OUT: Final = "Load it on each rank from a file, make it a value of the State, or send it in the training function"

Refuse = Callable[[str], NoReturn]
"""Ends the process, whose script is wrong, with a sentence."""

Replace = Callable[["SetupCalls"], Callable[[], None]]
"""Has the functions of an engine ask, until what is returned is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupResult:
    """What one operation has returned."""

    kind: str
    name: str
    """Empty if the script gives none."""
    size: int
    """Of the world that has returned it."""
    values: "tuple[torch.Tensor, ...] | None" = None
    """On the host; none at all for a tensor that the State brings. None: nobody has waited for it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    @property
    def bytes(self) -> int:
        """Of its values."""
        return sum(value.nbytes for value in self.values or ())


@dataclass(frozen=True, slots=True)
class SetupHistory:
    """What the operations of the first world have returned, in the order of their calls."""

    results: list[SetupResult] = field(default_factory=list)
    parameters: "list[torch.Tensor | None]" = field(default_factory=list)
    """Of `hvd.broadcast_parameters`, tensor by tensor. None: the State brings it.

    Apart from the results: what the State brings may be large, and is never copied; and one that joins may send more or
    fewer of it than those that began, such as none where it has found a checkpoint.
    """

    @property
    def has_values(self) -> bool:
        """Whether one that joins would miss anything of it."""
        return bool(self.results) or any(value is not None for value in self.parameters)


class SetupCalls:
    """Those of one process. One thread makes them."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.has_met = False
        """Whether `meet` has been called."""
        self._limit, self._bytes = limit_bytes, 0
        self._history = SetupHistory()
        self._joins = self._is_over = self._is_within = False
        """Whether the history is that of others; whether this process has come to its training function; whether an
        operation that is kept as a whole is at work."""
        self._next = self._next_parameter = 0
        """Of the history's lists, in a process that joins."""
        self._sent: list[torch.Tensor] = []
        """By `hvd.broadcast_parameters`; in a process that joins those that it has kept as they were."""
        self._broadcast: dict[int, torch.Tensor] = {}
        """Of single tensors that the State may bring: by number of the result."""
        self._put_back: Callable[[], None] | None = None
        self._refuse: Refuse | None = None

    # --- A process's way ---------------------------------------------------------------------------------------------

    def meet(self, world: TrainingWorld) -> None:
        """Give those that join what they missed. A collective operation, the first of each world.

        Raises:
            HorovodInternalError: a member of the world is lost.
        """
        self.stop()
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
            self._correct(history)
            self._history, self._joins = history, True

    def begin(self, refuse: Refuse, replace_functions: Replace) -> None:
        """Replace the engine's functions until `end`: keep what they return, or return what is known."""
        self._refuse = refuse
        self._put_back = replace_functions(self)

    def stop(self) -> None:
        """Put the engine's functions back. A second call does nothing."""
        if self._put_back is not None:
            self._put_back()
            self._put_back = None

    def end(self, brought: "Callable[[], Iterable[torch.Tensor]]") -> None:
        """Put the engine's functions back: the script has come to its training function. A second call does nothing.

        `brought`: the tensors of its State.
        """
        self.stop()
        if self._is_over:
            return
        self._is_over = True
        state = {_storage(tensor) for tensor in brought()} if self._sent or self._broadcast else set()
        if self._joins:
            if any(_storage(tensor) not in state for tensor in self._sent):
                self.refuse("a broadcast of parameters that are not in the State, and that those that began never sent")
        else:
            self._forget_brought(state)
        self._sent.clear()
        self._broadcast.clear()

    def once(self, kind: str, ask: Callable[[], T]) -> T:
        """Return what `ask`, a collective operation of any values, returns; before training that of the first world."""
        if self._put_back is None or self._is_within:
            return ask()
        if self._joins:
            answer: T = self.answer_object(kind)
            return answer
        with self.within():
            value = ask()
        self.keep_object(self.begun(kind), value)
        return value

    # --- For the engine's functions ----------------------------------------------------------------------------------

    @property
    def joins(self) -> bool:
        """Whether this process joins those that have trained: it is told what they got, and asks nobody."""
        return self._joins

    @property
    def is_within(self) -> bool:
        """Whether what is asked now is part of an operation that is kept as a whole."""
        return self._is_within

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Keep none of the operations that this one is made of."""
        self._is_within = True
        try:
            yield
        finally:
            self._is_within = False

    @property
    def size_of_last(self) -> int:
        """How many ranks have given to the operation that was answered last."""
        return self._history.results[self._next - 1].size

    def begun(self, kind: str, name: str = "", *, size: int = 1) -> int:
        """Take note of an operation of the first world. Returns its number."""
        self._history.results.append(SetupResult(kind=kind, name=name, size=size))
        return len(self._history.results) - 1

    def forget(self, number: int) -> None:
        """Forget the operation that has begun last: it is kept in another way."""
        del self._history.results[number]

    def keep(self, number: int, outputs: "Sequence[torch.Tensor]") -> None:
        """Keep what an operation has returned. Refuses the script if that is more than can be kept."""
        result = self._history.results[number]
        self._bytes += sum(output.nbytes for output in outputs)
        if self._bytes > self._limit:
            self.refuse(
                f"what ranks send each other before the training function is kept for processes that join later, "
                f"{self._limit >> 20} MiB at most, and {result} is too large"
            )
        self._history.results[number] = replace(result, values=tuple(map(_copy, outputs)))

    def keep_object(self, number: int, value: object) -> None:
        """Keep anything that can be pickled, as `keep` does."""
        import torch

        self.keep(number, (torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8),))

    def keep_broadcast(self, number: int, tensor: "torch.Tensor") -> None:
        """Keep what one tensor was set to until `end`, and longer if the State does not bring it."""
        self._broadcast[number] = tensor
        self._history.results[number] = replace(self._history.results[number], values=(_copy(tensor),))

    def answer(self, kind: str, name: str = "") -> "tuple[torch.Tensor, ...]":
        """Return what the first world has got. Refuses a script that asks something else."""
        if not self._next:
            logger.info("joins a job in training: what it asks for before is answered as it was in the first world")
        words, number = f"{kind} {name}".rstrip(), self._next
        self._next += 1
        known = self._history.results[number] if number < len(self._history.results) else None
        if known is None or known.kind != kind or known.values is None:
            self.refuse(
                f"this process joins a job in training and calls {words} before its training function, where those "
                f"that began had called {known or 'nothing more'}: all must call the same there, whatever their rank "
                "and the world's size"
            )
        return known.values

    def answer_object(self, kind: str) -> Any:
        """Return what `keep_object` has kept in the first world, as `answer` does."""
        return pickle.loads(self.answer(kind)[0].numpy().tobytes())  # noqa: S301 - of this job's own process

    def write(self, outputs: "Sequence[torch.Tensor]", values: "Sequence[torch.Tensor]", words: str) -> None:
        """Write what the first world has got. Refuses a script that asks for another shape."""
        import torch

        if [output.shape for output in outputs] != [value.shape for value in values]:
            self.refuse(
                f"this process joins a job in training and calls {words} before its training function with another "
                "shape than those that began"
            )
        with torch.no_grad():
            for output, value in zip(outputs, values, strict=True):
                output.copy_(value)

    def parameter(self, tensor: "torch.Tensor") -> None:
        """Take note of a tensor of `hvd.broadcast_parameters`; or, in one that joins, give it what it misses."""
        if not self._joins:
            self._sent.append(tensor)
            return
        number, known = self._next_parameter, self._history.parameters
        self._next_parameter += 1
        value = known[number] if number < len(known) else None
        if value is None:
            self._sent.append(tensor)
        else:
            self.write([tensor], [value], "hvd.broadcast_parameters")

    def refuse(self, what: str) -> NoReturn:
        """End the process with what is wrong with its script, and the way out."""
        assert self._refuse is not None
        self._refuse(f"{what}. {_WAY_OUT}")

    # --- Internal ----------------------------------------------------------------------------------------------------

    def _correct(self, history: SetupHistory) -> None:
        """Give this process, which has asked in a world of one, what it has broadcast to itself."""
        for tensor, value in zip(self._sent, history.parameters, strict=False):
            if value is not None:
                self.write([tensor], [value], "hvd.broadcast_parameters")
        for number, tensor in self._broadcast.items():
            known = history.results[number] if number < len(history.results) else None
            if known is not None and known.kind == self._history.results[number].kind and known.values:
                self.write([tensor], known.values, str(known))
        self._sent.clear()
        self._broadcast.clear()

    def _forget_brought(self, state: set[int]) -> None:
        """Keep nothing of what the State brings."""
        kept = [None if _storage(tensor) in state else _copy(tensor) for tensor in self._sent]
        self._history.parameters[:] = kept
        size = sum(tensor.nbytes for tensor in kept if tensor is not None)
        for number, tensor in self._broadcast.items():
            if _storage(tensor) in state:
                self._history.results[number] = replace(self._history.results[number], values=())
            size += self._history.results[number].bytes
        if size > self._limit:
            logger.warning(
                "broadcasts before training have sent %d MiB that are not part of the State: each process keeps them "
                "for those that join",
                size >> 20,
            )


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
