"""A tree of one rank reaches all others, whatever they have themselves."""

from collections import OrderedDict
from typing import Any

import pytest
import torch

from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.state.broadcast import PACK_BYTES, broadcast
from hvd_elastic.trainer.state.state_tree import Path, Tree, leaves
from testbed.thread_world import ThreadTrainingWorld, in_each_rank

LARGE = PACK_BYTES // 8


def tree_of(rank: int) -> Tree:
    """No two ranks have a tensor or a value in common."""
    generator = torch.Generator().manual_seed(rank)
    return {
        "large": torch.randn(LARGE + 1, generator=generator, dtype=torch.float64),
        "small": [torch.randn(3, 2, generator=generator), torch.tensor(rank, dtype=torch.int16)],
        "turned": torch.randn(2, 5, generator=generator).t(),
        "empty": torch.empty(0, rank),
        "half": torch.randn(7, generator=generator).to(torch.bfloat16),
        "complex": torch.randn(2, generator=generator, dtype=torch.complex64).conj(),
        "flags": torch.tensor([True, False, rank == 1]),
        "sparse": torch.tensor([[0.0, rank + 1.0]]).to_sparse(),
        "plain": OrderedDict(rank=rank, text=f"of {rank}", nothing=None),
    }


def is_same(one: Tree, other: Tree) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one.to_dense(), other.to_dense())
    if isinstance(one, dict):
        return type(one) is type(other) and one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("root", [0, 1, 2])
def test_every_rank_has_the_roots_tree(root: int) -> None:
    def work(world: ThreadTrainingWorld) -> tuple[Tree, list[str]]:
        return broadcast(tree_of(world.rank()), root, into={}, world=world), world.said

    results = in_each_rank(3, work)
    assert all(is_same(tree, tree_of(root)) for tree, _ in results)
    large = "broadcast hvd_elastic.sync.0"
    assert [said for _, said in results] == [
        ["broadcast_object hvd_elastic.outline", large, "broadcast hvd_elastic.pack.0"]
    ] * 3, "small tensors go together"


def test_it_is_received_into_the_tensors_that_fit() -> None:
    def work(world: ThreadTrainingWorld) -> bool:
        own: dict[Path, Any] = dict(leaves(tree_of(world.rank())))
        tree = broadcast(tree_of(0), 0, into=own, world=world)
        received = dict(leaves(tree))
        fits = [path for path, tensor in own.items() if received[path] is tensor]
        return ("large",) in fits and ("small", 0) in fits and ("turned",) not in fits

    assert in_each_rank(3, work) == [False, True, True]


def test_a_rank_that_is_lost_in_the_middle_ends_it_for_the_others() -> None:
    def work(world: ThreadTrainingWorld) -> None:
        if world.rank() == 1:
            world.broadcast_object(None, root=0, name="hvd_elastic.outline")
            return
        with pytest.raises(HorovodInternalError):
            broadcast(tree_of(0), 0, into={}, world=world)

    in_each_rank(3, work)
