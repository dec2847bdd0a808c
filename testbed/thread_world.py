"""A training world whose ranks are threads of one process: a fake of Horovod's, for tests of what ranks agree on.

Operations are matched by their names, as Horovod matches them: in any order, and one of the same name may follow when
the one before is over. It is stricter where Horovod waits: a rank that ends or fails is lost to the others at once,
whose operations fail as Horovod's do; and where all that are left wait for each other, the test fails.
"""

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.collectives.training_world import Finish, ReduceOp

_Result = TypeVar("_Result")
T = TypeVar("T")


@dataclass(slots=True)
class _Operation:
    """What ranks have given to one operation so far."""

    kind: str
    given: dict[int, Any] = field(default_factory=dict)


class Meeting:
    """Where the ranks of one world exchange values."""

    def __init__(self, size: int, *, ranks_per_host: int | None = None) -> None:
        """Make the meeting of a world. `ranks_per_host`: None if all are on one host."""
        self.size, self.ranks_per_host = size, ranks_per_host or size
        self._operations: dict[tuple[str, int], _Operation] = {}
        self._working: set[int] = set()
        self._waiting: dict[int, tuple[str, int]] = {}
        """By rank, for which operation."""
        self._changed = threading.Condition()

    def give(self, rank: int, kind: str, name: str, number: int, value: Any) -> None:
        """Give a rank's value for the operation that is its `number`th of this name."""
        with self._changed:
            operation = self._operations.setdefault((name, number), _Operation(kind))
            if operation.kind != kind:
                raise HorovodInternalError(f"{name}: rank {rank} calls {kind}, and another rank {operation.kind}")
            operation.given[rank] = value
            self._changed.notify_all()

    def take(self, rank: int, name: str, number: int) -> list[Any]:
        """Wait for the values of all ranks, and return them in their order."""
        given = self._operations[name, number].given
        with self._changed:
            self._waiting[rank] = name, number
            try:
                while len(given) < self.size:
                    self._check(rank, name, given)
                    self._changed.wait()
            finally:
                del self._waiting[rank]
        return [given[each] for each in range(self.size)]

    def _check(self, rank: int, name: str, given: Collection[int]) -> None:
        """Raise an error if a rank waits for what cannot come."""
        lost = [each for each in range(self.size) if each not in given and each not in self._working]
        if lost:
            raise HorovodInternalError(f"{name}: rank {rank} waits for ranks {lost}, which are lost")
        if all(each in self._waiting and not self._is_over(each) for each in self._working):
            raise AssertionError(f"all ranks wait for each other: {self._waiting}")

    def _is_over(self, rank: int) -> bool:
        return len(self._operations[self._waiting[rank]].given) == self.size

    def begin(self, rank: int) -> None:
        """A rank works from now on: others may wait for it."""
        with self._changed:
            self._working.add(rank)

    def end(self, rank: int) -> None:
        """A rank has ended: the operations of those that wait for it fail."""
        with self._changed:
            self._working.discard(rank)
            self._changed.notify_all()


class ThreadTrainingWorld:
    """A `TrainingWorld`, as one of its ranks sees it. One thread uses it."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.said: list[str] = []
        """Each operation that this rank has begun: `allreduce hvd_elastic.agreement`."""
        self.enter(meeting, rank)

    def enter(self, meeting: Meeting, rank: int) -> None:
        """Be a rank of another world from now on, as a process is that was reset."""
        self._meeting, self._rank, self._is_in = meeting, rank, True
        self._counts = Counter[str]()

    def init(self) -> None:
        if not self._is_in:
            raise ValueError("a world of threads cannot be formed again: see `enter`")

    def shutdown(self) -> None:
        if self._is_in:
            self._is_in = False
            self.end()

    def begin(self) -> None:
        """Let the other ranks wait for this one, until `end`."""
        self._meeting.begin(self._rank)

    def end(self) -> None:
        """Let operations fail that wait for this rank."""
        self._meeting.end(self._rank)

    def is_initialized(self) -> bool:
        return self._is_in

    def rank(self) -> int:
        return self._inside(self._rank)

    def size(self) -> int:
        return self._inside(self._meeting.size)

    def local_rank(self) -> int:
        return self._inside(self._rank % self._meeting.ranks_per_host)

    def local_size(self) -> int:
        per_host = self._meeting.ranks_per_host
        return self._inside(min(per_host, self._meeting.size - self._rank // per_host * per_host))

    def allreduce(self, tensor: torch.Tensor, *, op: ReduceOp, name: str) -> torch.Tensor:
        take = self._begin(f"allreduce {op}", name, tensor.detach().clone())
        return _reduced(take(), op)

    def allreduce_async_(self, tensor: torch.Tensor, *, op: ReduceOp, name: str) -> Finish:
        take = self._begin(f"allreduce {op}", name, tensor.detach().clone())
        return lambda: tensor.copy_(_reduced(take(), op))

    def reducescatter_async(self, tensor: torch.Tensor, *, op: ReduceOp, name: str) -> Finish:
        take = self._begin(f"reducescatter {op}", name, tensor.detach().clone())

        def finish() -> torch.Tensor:
            return torch.tensor_split(_reduced(take(), op), self.size())[self.rank()].clone()

        return finish

    def allgather(self, tensor: torch.Tensor, *, name: str) -> torch.Tensor:
        return self.allgather_async(tensor, name=name)()

    def allgather_async(self, tensor: torch.Tensor, *, name: str) -> Finish:
        take = self._begin("allgather", name, tensor.detach().clone())
        return lambda: torch.cat(_alike(take(), but_first=True))

    def alltoall_async(self, tensor: torch.Tensor, *, splits: torch.Tensor, name: str) -> Finish:
        parts = torch.split(tensor.detach().clone(), splits.tolist())
        take = self._begin("alltoall", name, parts)
        return lambda: torch.cat([given[self.rank()] for given in take()])

    def broadcast_async_(self, tensor: torch.Tensor, root: int, *, name: str) -> Finish:
        take = self._begin(f"broadcast {root}", name, tensor.detach().clone())

        def finish() -> torch.Tensor:
            with torch.no_grad():
                return tensor.copy_(_alike(take())[root])

        return finish

    def broadcast_object(self, value: T, *, root: int, name: str) -> T:
        take = self._begin(f"broadcast_object {root}", name, pickle.dumps(value if self._rank == root else None))
        received: T = pickle.loads(take()[root])
        return received

    def allgather_object(self, value: T, *, name: str) -> list[T]:
        take = self._begin("allgather_object", name, pickle.dumps(value))
        return [pickle.loads(given) for given in take()]

    def is_loss(self, _error: Exception) -> bool:
        return False

    def _begin(self, kind: str, name: str, value: Any) -> Callable[[], list[Any]]:
        meeting, rank, number = self._inside(self._meeting), self._rank, self._counts[name]
        self._counts[name] += 1
        self.said.append(f"{kind.partition(' ')[0]} {name}")
        meeting.give(rank, kind, name, number, value)
        return lambda: meeting.take(rank, name, number)

    def _inside(self, value: T) -> T:
        if not self._is_in:
            raise ValueError("this rank is in no world")
        return value


def in_each_rank(
    size: int, work: Callable[[ThreadTrainingWorld], _Result], *, ranks_per_host: int | None = None
) -> list[_Result]:
    """Return what `work` returns in each rank of a new world. Raises the first error of a rank."""
    meeting = Meeting(size, ranks_per_host=ranks_per_host)
    return together([ThreadTrainingWorld(meeting, rank) for rank in range(size)], work)


def next_world(worlds: Sequence[ThreadTrainingWorld], *, newcomers: int = 0) -> list[ThreadTrainingWorld]:
    """Let ranks that are left, and newcomers behind them, form a new world. Returns its ranks in their order."""
    meeting = Meeting(len(worlds) + newcomers)
    for rank, world in enumerate(worlds):
        world.enter(meeting, rank)
    return [*worlds, *(ThreadTrainingWorld(meeting, rank) for rank in range(len(worlds), meeting.size))]


def together(worlds: Sequence[ThreadTrainingWorld], work: Callable[[ThreadTrainingWorld], _Result]) -> list[_Result]:
    """Call `work` in a thread for each of these ranks of a world; others are lost. Raises the first error of a rank."""
    errors: list[BaseException] = []

    def run(world: ThreadTrainingWorld) -> _Result:
        try:
            return work(world)
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            world.end()

    for world in worlds:
        world.begin()
    with ThreadPoolExecutor(len(worlds)) as threads:
        outcomes = [threads.submit(run, world) for world in worlds]
    if errors:
        raise errors[0]
    return [outcome.result() for outcome in outcomes]


def _reduced(tensors: list[torch.Tensor], op: ReduceOp) -> torch.Tensor:
    stacked = torch.stack(_alike(tensors))
    if op is ReduceOp.MAX:
        return stacked.amax(dim=0)
    wide = torch.float32 if stacked.dtype is torch.bfloat16 else stacked.dtype  # rounded once, as Horovod's
    summed = stacked.sum(dim=0, dtype=wide)
    return (summed if op is ReduceOp.SUM else summed / len(tensors)).to(stacked.dtype)


def _alike(tensors: list[torch.Tensor], *, but_first: bool = False) -> list[torch.Tensor]:
    """The tensors, which all ranks find alike or not: as with Horovod, all of them raise."""
    first = 1 if but_first else 0
    if len({(tuple(each.shape[first:]), each.dtype) for each in tensors}) > 1:
        raise HorovodInternalError(f"the ranks give tensors of {[(tuple(t.shape), t.dtype) for t in tensors]}")
    return tensors
