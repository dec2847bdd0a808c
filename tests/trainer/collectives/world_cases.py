"""What every training world promises. Each case is called on every rank; run as a script, on ranks of Horovod's."""

from collections.abc import Callable
from typing import Final

import pytest
import torch

from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.collectives.horovod_functions import HOROVOD
from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld


def numbers(world: TrainingWorld) -> None:
    assert world.is_initialized()
    assert 0 <= world.rank() < world.size()
    assert 0 <= world.local_rank() < world.local_size() <= world.size()
    world.init()
    assert world.allgather_object(world.rank(), name="ranks") == list(range(world.size()))


def reductions(world: TrainingWorld) -> None:
    own = torch.tensor([[world.rank(), -world.rank(), 1]], dtype=torch.float64)
    total, most = sum(range(world.size())), world.size() - 1
    results = {op: world.allreduce(own, op=op, name=f"reduced.{op}") for op in ReduceOp}
    assert results[ReduceOp.SUM].tolist() == [[total, -total, world.size()]]
    assert results[ReduceOp.AVERAGE].tolist() == [[total / world.size(), -total / world.size(), 1]]
    assert results[ReduceOp.MAX].tolist() == [[most, 0, 1]]
    assert own.tolist() == [[world.rank(), -world.rank(), 1]]
    large = torch.tensor([(1 << 40) + world.rank()], dtype=torch.int64)
    assert world.allreduce(large, op=ReduceOp.SUM, name="large").tolist() == [(world.size() << 40) + total]


def an_allreduce_in_place(world: TrainingWorld) -> None:
    own = torch.full((3,), float(world.rank()))
    finish = world.allreduce_async_(own, op=ReduceOp.SUM, name="in place")
    assert finish() is own
    assert own.tolist() == [float(sum(range(world.size())))] * 3


def a_reducescatter_gives_the_longer_parts_to_the_lower_ranks(world: TrainingWorld) -> None:
    length = 2 * world.size() + world.size() // 2
    finish = world.reducescatter_async(torch.arange(length, dtype=torch.float32), op=ReduceOp.AVERAGE, name="scattered")
    part, longer = divmod(length, world.size())
    start = world.rank() * part + min(world.rank(), longer)
    assert finish().tolist() == list(range(start, start + part + (world.rank() < longer)))


def an_allgather_of_ranks_that_give_different_lengths(world: TrainingWorld) -> None:
    own = torch.full((world.rank(), 2), world.rank(), dtype=torch.int64)
    rows = [[rank, rank] for rank in range(world.size()) for _ in range(rank)]
    assert world.allgather(own, name="rows").tolist() == rows
    assert world.allgather_async(own, name="rows later")().tolist() == rows


def an_alltoall(world: TrainingWorld) -> None:
    """Rank r gives each rank t of them t + 1 rows that say r and t."""
    targets = [target for target in range(world.size()) for _ in range(target + 1)]
    own = torch.tensor([[world.rank(), target] for target in targets])
    splits = torch.tensor([target + 1 for target in range(world.size())], dtype=torch.int32)
    received = world.alltoall_async(own, splits=splits, name="sent")()
    assert received.tolist() == [
        [source, world.rank()] for source in range(world.size()) for _ in range(world.rank() + 1)
    ]


def broadcasts(world: TrainingWorld) -> None:
    root = world.size() - 1
    tensors = [torch.full((2,), world.rank(), dtype=torch.uint8) for _ in range(3)]
    begun = [world.broadcast_async_(tensor, root, name=f"cast.{index}") for index, tensor in enumerate(tensors)]
    for finish, tensor in zip(begun, tensors, strict=True):
        assert finish() is tensor
        assert tensor.tolist() == [root, root]
    given = {"from": world.rank()} if world.rank() == root else None
    assert world.broadcast_object(given, root=root, name="object") == {"from": root}


def the_same_name_again(world: TrainingWorld) -> None:
    for number in range(3):
        mine = torch.tensor([number * (world.rank() == 0)])
        assert world.allreduce(mine, op=ReduceOp.MAX, name="again").item() == number


def operations_in_another_order_on_each_rank(world: TrainingWorld) -> None:
    names = ["a", "b"] if world.rank() % 2 else ["b", "a"]
    begun = {name: world.allgather_async(torch.tensor([ord(name)]), name=name) for name in names}
    assert {name: finish().tolist() for name, finish in begun.items()} == {
        name: [ord(name)] * world.size() for name in names
    }


def tensors_that_do_not_fit_fail_on_every_rank(world: TrainingWorld) -> None:
    if world.size() == 1:
        return
    with pytest.raises(HorovodInternalError):
        world.allreduce(torch.zeros(1 + world.rank()), op=ReduceOp.SUM, name="shapes")
    with pytest.raises(HorovodInternalError):
        world.allgather(torch.zeros(1, dtype=(torch.float32, torch.int64)[world.rank() % 2]), name="dtypes")


CASES: Final[list[Callable[[TrainingWorld], None]]] = [
    numbers,
    reductions,
    an_allreduce_in_place,
    a_reducescatter_gives_the_longer_parts_to_the_lower_ranks,
    an_allgather_of_ranks_that_give_different_lengths,
    an_alltoall,
    broadcasts,
    the_same_name_again,
    operations_in_another_order_on_each_rank,
    tensors_that_do_not_fit_fail_on_every_rank,
]

if __name__ == "__main__":
    HOROVOD.init()
    for case in CASES:
        case(HOROVOD)
        print(f"done: {case.__name__}", flush=True)
    HOROVOD.shutdown()
    print("all done", flush=True)
