"""A world by torch.distributed: its default process group, made anew for each world.

Gloo matches operations by their order alone, and two ranks that give it tensors of unlike sizes can end its process. So
every operation begins with a word of sixteen bytes from each rank: what is called, and with which length. That is a
network's round trip more, which only the trainer's own operations pay: DistributedDataParallel calls torch itself.
"""

import atexit
import contextlib
import functools
import hashlib
import math
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hvd_elastic.mpijob.contract import ENV_RESTARTS
from hvd_elastic.trainer.collectives import collective_calls, library_worlds
from hvd_elastic.trainer.collectives.engine import has_server
from hvd_elastic.trainer.collectives.torch_engine import data_parallel
from hvd_elastic.trainer.collectives.torch_engine.torchrun_environment import TorchrunEnvironment, torchrun_variables
from hvd_elastic.trainer.collectives.training_world import Finish, ReduceOp, UnformedWorldError

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

T = TypeVar("T")

TIMEOUT: Final = timedelta(minutes=30)
"""torch's own, of an operation. A rank may be late by an evaluation; that one is lost the launcher and its sockets say
at once."""

_OF_A_PEER: Final = ("gloo/transport/", "gloo/rendezvous/", "caused pair closure", "NCCL error", "NCCL communicator")
"""In the words of torch's errors when a rank is lost: of Gloo's they are paths of its source (`pair.cc`,
`unbound_buffer.cc`, torch 2.15)."""

FORM_TIMEOUT: Final = timedelta(seconds=6)
"""Of a connection, as a world forms. For a member that dies before it connects, the others wait five times as long:
nothing else tells Gloo (`Pair::waitUntil` in its `transport/tcp/pair.h`, April 2026)."""

OpenStore = Callable[[], "Store"]
"""Opens what the members of the next world find each other in."""


class TorchTrainingWorld:
    """A `TrainingWorld`. One thread calls its operations, all ranks in the same order."""

    def __init__(self) -> None:
        self.environment = TorchrunEnvironment()
        """In which the script reads of the world."""
        self.models = data_parallel.THIS_PROCESS
        """Of the script, in DistributedDataParallel."""
        self._open_store: OpenStore | None = None
        self._first: Callable[[Callable[[], None]], None] | None = None
        self._has_begun = False
        self._by_script: Callable[[], None] = _nothing_yet
        self._worlds = int(os.environ.get(ENV_RESTARTS, "0"))
        """That this process has formed, or tried to; with those before its script was begun again."""
        self._init_process_group: Callable[..., None] = _nothing_yet
        """torch's own."""
        self._is_ended_with_process = False
        self._left: Any = None
        """The group of the world before. It ends only when its sockets are cut: its threads may still wait in it."""

    def begin_with(
        self,
        first: Callable[[Callable[[], None]], None],
        open_store: OpenStore,
        by_script: Callable[[], None],
    ) -> bool:
        """Have the first `init` call `first`, with what forms a world. A second call does nothing.

        `by_script` is called after it where `init_process_group` was what the script called. Returns whether this was
        the first call.
        """
        is_first = self._first is None and not self._has_begun
        if is_first:
            self._first, self._open_store, self._by_script = first, open_store, by_script
            self._take_scripts_groups()
            self.models.install()
        return is_first

    def _take_scripts_groups(self) -> None:
        """Have `init_process_group` of a script, or of a library, give it this world."""
        from torch import distributed

        stock = self._init_process_group = distributed.init_process_group

        @functools.wraps(stock)
        def init_process_group(*_: Any, **__: Any) -> None:
            is_first = not self._has_begun
            self.init()
            if is_first:
                self._by_script()

        distributed.init_process_group = distributed.distributed_c10d.init_process_group = init_process_group

    def init(self) -> None:
        if self.is_initialized():
            return
        first = None if self._has_begun else self._first
        self._has_begun = True
        if first is None:
            self._form()
        else:
            first(self._form)

    def _form(self) -> None:
        import torch
        from torch import distributed
        from torch._C._distributed_c10d import HashStore

        self._left = None
        if not self._is_ended_with_process:
            self._is_ended_with_process = True
            atexit.register(self._end)
        if self._init_process_group is _nothing_yet:
            self._init_process_group = distributed.init_process_group
        if interface := os.environ.get("HOROVOD_GLOO_IFACE"):
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        is_alone = self._open_store is None or not has_server()
        self.tell_script()
        self._worlds += 1
        # torch counts groups to name them, by which members find each other, and goes on from one that has not formed
        # (2.15, `_process_group_name`): this process would look for a newcomer, whose first group it is, for ever.
        distributed.distributed_c10d._world.group_count = 0
        try:
            self._init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                store=HashStore() if is_alone or self._open_store is None else self._open_store(),
                rank=0 if is_alone else _number("RANK"),
                world_size=1 if is_alone else _number("SIZE"),
                timeout=FORM_TIMEOUT,
            )
            # torch 2.15 has it under another name, and warns of the old one.
            set_timeout = getattr(distributed, "set_timeout", None) or distributed.distributed_c10d._set_pg_timeout
            set_timeout(TIMEOUT)
        except RuntimeError as error:
            if distributed.is_initialized():
                distributed.destroy_process_group()
            raise UnformedWorldError(str(error)) from error
        self.models.enter_world()

    def tell_script(self) -> None:
        """Set what `torchrun` tells a script and its libraries, of the world that is about to form."""
        told = torchrun_variables(os.environ, restarts=self._worlds)
        os.environ.update(told)
        library_worlds.enter_world(told)

    def shutdown(self) -> None:
        collective_calls.THIS_PROCESS.wait_ends()  # of a backward pass that an error has ended
        if self.is_initialized():
            from torch import distributed

            self._left = distributed.group.WORLD
            distributed.destroy_process_group()

    def _end(self) -> None:
        """End the group's threads before the interpreter goes.

        One that is about to drop the last reference to a tensor of Python's would take the lock of an interpreter that
        is gone, which ends the process (`terminate called without an active exception`).
        """
        self.shutdown()
        self.models.leave_world()
        self._left = None

    def is_initialized(self) -> bool:
        from torch import distributed

        return distributed.is_initialized()

    def rank(self) -> int:
        from torch import distributed

        return distributed.get_rank()

    def size(self) -> int:
        from torch import distributed

        return distributed.get_world_size()

    def local_rank(self) -> int:
        return _number("LOCAL_RANK")

    def local_size(self) -> int:
        return _number("LOCAL_SIZE", 1)

    def is_loss(self, error: Exception) -> bool:
        return isinstance(error, RuntimeError) and any(words in str(error) for words in _OF_A_PEER)

    # --- Operations --------------------------------------------------------------------------------------------------

    def allreduce(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> "torch.Tensor":
        return self.allreduce_async_(tensor.detach().clone(), op=op, name=name)()

    def allreduce_async_(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> Finish:
        from torch import distributed

        self._meet(f"allreduce {op} {name}", tensor, tensor.shape)
        if self.size() == 1 or not tensor.numel():
            return lambda: tensor
        sent = _reducible(tensor.detach())
        operator = distributed.ReduceOp.MAX if op is ReduceOp.MAX else distributed.ReduceOp.SUM
        wait = _begin(f"allreduce {name}", lambda: distributed.all_reduce(sent, operator, async_op=True))
        size = self.size()

        def finish() -> "torch.Tensor":
            import torch

            wait()
            if op is ReduceOp.AVERAGE:
                whole = not (sent.is_floating_point() or sent.is_complex())
                sent.copy_(sent.div(size, rounding_mode="trunc") if whole else sent.mul(1 / size))
            if sent.data_ptr() != tensor.data_ptr():
                with torch.no_grad():
                    tensor.copy_(torch.view_as_complex(sent) if tensor.is_complex() else sent)
            return tensor

        return finish

    def reducescatter_async(self, tensor: "torch.Tensor", *, op: ReduceOp, name: str) -> Finish:
        # Gloo reduces in whole tensors alone.
        finish = self.allreduce_async_(tensor.detach().clone(), op=op, name=name)

        def part() -> "torch.Tensor":
            return finish().tensor_split(self.size())[self.rank()].clone()

        return part

    def allgather(self, tensor: "torch.Tensor", *, name: str) -> "torch.Tensor":
        return self.allgather_async(tensor, name=name)()

    def allgather_async(self, tensor: "torch.Tensor", *, name: str) -> Finish:
        import torch
        from torch import distributed

        own = tensor.detach() if tensor.dim() else tensor.detach().unsqueeze(0)
        lengths = self._meet(f"allgather {name}", own, own.shape[1:], len(own))
        row = math.prod(own.shape[1:]) * own.element_size()
        if self.size() == 1 or not row * max(lengths):
            return lambda: own.clone() if len(own) == sum(lengths) else own.new_empty((sum(lengths), *own.shape[1:]))
        sent = torch.zeros(row * max(lengths), dtype=torch.uint8, device=own.device)
        sent[: row * len(own)] = _bytes(own).flatten()
        received = [torch.empty_like(sent) for _ in lengths]
        wait = _begin(f"allgather {name}", lambda: distributed.all_gather(received, sent, async_op=True))

        def finish() -> "torch.Tensor":
            wait()
            kept = torch.cat([each[: row * length] for each, length in zip(received, lengths, strict=True)])
            return kept.view(own.dtype).view(sum(lengths), *own.shape[1:])

        return finish

    def alltoall_async(self, tensor: "torch.Tensor", *, splits: "torch.Tensor", name: str) -> Finish:
        import torch
        from torch import distributed

        own = tensor.detach()
        called = f"alltoall {name}"
        self._meet(called, own, own.shape[1:])
        if self.size() == 1:
            return own.clone
        told = [torch.empty(self.size(), dtype=torch.int64) for _ in range(self.size())]
        _begin(called, lambda: distributed.all_gather(told, splits.to(torch.int64), async_op=True))()
        row = math.prod(own.shape[1:]) * own.element_size()
        rows = [int(each[self.rank()]) for each in told]
        received = torch.empty(sum(rows) * row, dtype=torch.uint8, device=own.device)
        sent = _bytes(own).flatten()
        wait = _begin(
            called,
            lambda: distributed.all_to_all_single(
                received,
                sent,
                output_split_sizes=[each * row for each in rows],
                input_split_sizes=[each * row for each in splits.tolist()],
                async_op=True,
            ),
        )

        def finish() -> "torch.Tensor":
            wait()
            return received.view(own.dtype).view(sum(rows), *own.shape[1:])

        return finish

    def broadcast_async_(self, tensor: "torch.Tensor", root: int, *, name: str) -> Finish:
        from torch import distributed

        self._meet(f"broadcast {root} {name}", tensor, tensor.shape)
        if self.size() == 1 or not tensor.numel():
            return lambda: tensor
        sent = _bytes(tensor.detach())
        wait = _begin(f"broadcast {name}", lambda: distributed.broadcast(sent, root, async_op=True))

        def finish() -> "torch.Tensor":
            import torch

            wait()
            if sent.data_ptr() != tensor.data_ptr():
                with torch.no_grad():
                    tensor.copy_(sent.view(tensor.dtype).squeeze(-1))
            return tensor

        return finish

    def broadcast_object(self, value: T, *, root: int, name: str) -> T:
        import torch
        from torch import distributed

        data = pickle.dumps(value) if self.rank() == root else b""
        length = self._meet(f"broadcast_object {root} {name}", None, (), len(data))[root]
        if self.size() == 1:
            return value
        moved = torch.frombuffer(bytearray(data or bytes(length)), dtype=torch.uint8)
        _begin(f"broadcast {name}", lambda: distributed.broadcast(moved, root, async_op=True))()
        received: T = pickle.loads(moved.numpy().tobytes())  # noqa: S301 - of this job's own process
        return received

    def allgather_object(self, value: T, *, name: str) -> list[T]:
        import torch

        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = self.allgather(torch.tensor([len(data)]), name=f"{name}.lengths").tolist()
        parts = torch.split(self.allgather(data, name=name), lengths)
        return [pickle.loads(part.numpy().tobytes()) for part in parts]  # noqa: S301 - of this job's own processes

    def _meet(self, called: str, tensor: "torch.Tensor | None", shape: Sequence[int], length: int = 0) -> list[int]:
        """Tell all ranks what this one calls, and return the lengths that they give, by rank.

        Raises HorovodInternalError if one of them calls something else.
        """
        import torch
        from torch import distributed

        from hvd_elastic.trainer.collectives.errors import HorovodInternalError

        if self.size() == 1:
            return [length]
        words = called if tensor is None else f"{called} of {tuple(shape)} {tensor.dtype}"
        digest = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest())
        told = [torch.empty(2, dtype=torch.int64) for _ in range(self.size())]
        _begin(called, lambda: distributed.all_gather(told, torch.tensor([digest, length]), async_op=True))()
        differ = [rank for rank, each in enumerate(told) if int(each[0]) != digest]
        if differ:
            raise HorovodInternalError(f"rank {self.rank()} calls {words}, and ranks {differ} call something else")
        return [int(each[1]) for each in told]


def _nothing_yet(*_: object, **__: object) -> None:
    """Stand for torch's function until torch is imported."""


def _begin(called: str, operation: "Callable[[], Any]") -> Callable[[], None]:
    """Begin an operation; what is returned waits for it. Both raise HorovodInternalError."""
    with _translated():
        work = operation()

    def wait() -> None:
        with _translated(), collective_calls.THIS_PROCESS.waiting(called):
            work.wait()

    return wait


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    from hvd_elastic.trainer.collectives.errors import HorovodInternalError

    try:
        yield
    except RuntimeError as error:
        raise HorovodInternalError(str(error)) from error


def _number(name: str, default: int = 0) -> int:
    """One of this process's numbers in its world, as the launcher's answer has left them (`world/place.py`)."""
    return int(os.environ.get(f"HOROVOD_{name}", default))


def _reducible(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return what Gloo sums: the tensor's own memory where it knows the dtype, or a copy in one that it knows.

    In bfloat16 it would round after each rank; complex numbers, bool and int16 it lacks.
    """
    import torch

    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj()).clone()
    wide = {torch.bfloat16: torch.float32, torch.bool: torch.uint8, torch.int16: torch.int32}.get(tensor.dtype)
    return tensor.contiguous() if wide is None else tensor.to(wide)


def _bytes(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return the tensor's own memory, with one more dimension; a copy where that has gaps, or is conjugated."""
    import torch

    return tensor.resolve_conj().resolve_neg().contiguous().unsqueeze(-1).view(torch.uint8)
