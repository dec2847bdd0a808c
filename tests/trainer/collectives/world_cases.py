"""What every training world promises. Each case is called on every rank; run as a script, on ranks of the engine's."""

from collections.abc import Callable
from typing import Final

import pytest
import torch

from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld
from hvd_elastic.trainer.elastic import horovod_patches


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


LACKED: Final = (torch.bfloat16, torch.complex64, torch.complex128)
"""Dtypes that Horovod itself refuses."""


def values(rank: int, dtype: torch.dtype, *, rows: int = 5) -> torch.Tensor:
    """Numbers of one rank that a sum in their own precision, or in float16's range, would get wrong."""
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.randn(rows, 3, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    return (drawn * 1e6).to(dtype)


def mean(tensors: list[torch.Tensor]) -> torch.Tensor:
    """As Horovod has it: a sum of what goes over the network, one multiplication, and one rounding."""
    wide = [each.float() if each.dtype == torch.bfloat16 else each for each in tensors]
    return torch.stack(wide).sum(dim=0).mul(1 / len(tensors)).to(tensors[0].dtype)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they differ by less than what another order of summands makes."""
    return one.dtype == other.dtype and torch.allclose(one, other, rtol=2**-7 if one.dtype == torch.bfloat16 else 1e-5)


def reductions_in_dtypes_that_horovod_lacks(world: TrainingWorld) -> None:
    ranks = range(world.size())
    for dtype in LACKED:
        own, expected = values(world.rank(), dtype), mean([values(rank, dtype) for rank in ranks])
        averaged = world.allreduce(own, op=ReduceOp.AVERAGE, name=f"averaged.{dtype}")
        assert close(averaged, expected)
        assert torch.equal(own, values(world.rank(), dtype))
        part = world.reducescatter_async(own, op=ReduceOp.AVERAGE, name=f"part.{dtype}")()
        assert close(part, torch.tensor_split(expected, world.size())[world.rank()])
        gradient = own[1:3]
        assert world.allreduce_async_(gradient, op=ReduceOp.SUM, name=f"summed.{dtype}")() is gradient
        assert close(own[1:3], expected[1:3] * world.size()), "in the memory that it is a part of"
        assert torch.equal(own[3:], values(world.rank(), dtype)[3:])
        bits = world.allgather_object(torch.view_as_real(averaged) if dtype.is_complex else averaged, name="bits")
        assert all(torch.equal(bits[0], each) for each in bits)


def a_gradient_that_is_conjugated_when_it_is_read(world: TrainingWorld) -> None:
    own = values(world.rank(), torch.complex64).conj()
    expected = mean([values(rank, torch.complex64).conj().resolve_conj() for rank in range(world.size())])
    assert close(world.allreduce_async_(own, op=ReduceOp.AVERAGE, name="conjugated")(), expected)
    cast = values(world.rank(), torch.complex64).conj()
    world.broadcast_async_(cast, 0, name="conjugated cast")()
    assert torch.equal(cast, values(0, torch.complex64).conj())


def a_sum_in_bfloat16_is_rounded_once(world: TrainingWorld) -> None:
    """1 + 2**-8 is 1 in bfloat16: added one after the other, the small ones of all ranks are lost."""
    own = torch.full((3,), 1.0 if world.rank() == 0 else 2.0**-8, dtype=torch.bfloat16)
    summed = world.allreduce(own, op=ReduceOp.SUM, name="rounded")
    assert torch.equal(summed, torch.tensor(1 + (world.size() - 1) * 2.0**-8).bfloat16().expand(3))


def what_is_moved_keeps_its_bits_in_every_dtype(world: TrainingWorld) -> None:
    rank, ranks = world.rank(), range(world.size())
    for dtype in (*LACKED, torch.bool):
        own, last = values(rank, dtype, rows=rank + 1), values(world.size() - 1, dtype)
        assert torch.equal(
            world.allgather(own, name=f"all.{dtype}"), torch.cat([values(each, dtype, rows=each + 1) for each in ranks])
        )
        cast = values(rank, dtype)
        assert world.broadcast_async_(cast, world.size() - 1, name=f"cast.{dtype}")() is cast
        assert torch.equal(cast, last)
        number = values(rank, dtype)[0, 0]
        assert world.broadcast_async_(number, world.size() - 1, name=f"number.{dtype}")().equal(last[0, 0])
        splits = torch.ones(world.size(), dtype=torch.int32)
        sent = values(rank, dtype, rows=world.size())
        received = world.alltoall_async(sent, splits=splits, name=f"sent.{dtype}")()
        assert torch.equal(received, torch.stack([values(each, dtype, rows=world.size())[rank] for each in ranks]))
        assert world.allgather(own[:0], name=f"nothing.{dtype}").shape == (0, 3)


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
    reductions_in_dtypes_that_horovod_lacks,
    a_gradient_that_is_conjugated_when_it_is_read,
    a_sum_in_bfloat16_is_rounded_once,
    what_is_moved_keeps_its_bits_in_every_dtype,
    the_same_name_again,
    operations_in_another_order_on_each_rank,
    tensors_that_do_not_fit_fail_on_every_rank,
]

BY_NAME: Final = frozenset({operations_in_another_order_on_each_rank})
"""What an engine promises that matches operations by their names; torch.distributed matches them by their order."""

if __name__ == "__main__":
    horovod_patches.init()
    for case in CASES:
        if IS_TORCH and case in BY_NAME:
            continue
        case(WORLD)
        print(f"done: {case.__name__}", flush=True)
    WORLD.shutdown()
    print("all done", flush=True)
