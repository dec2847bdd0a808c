"""A world of threads promises what Horovod's promises: the same cases are run on both."""

import os
import sys
from collections.abc import Callable
from unittest import mock

import pytest
import torch

from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld
from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld
from hvd_elastic.trainer.elastic import horovod_patches
from testbed.thread_world import Meeting, ThreadTrainingWorld, in_each_rank, next_world, together
from tests.trainer.collectives import world_cases
from tests.trainer.elastic.bare_world import run_cases

WITHOUT_HOROVOD = "import runpy, sys; sys.modules['horovod'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
"""`python -c`, which runs the script that follows."""


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("case", world_cases.CASES, ids=lambda case: case.__name__)
def test_a_world_of_threads(case: Callable[[TrainingWorld], None], size: int) -> None:
    in_each_rank(size, case)


@pytest.mark.parametrize("case", world_cases.CASES, ids=lambda case: case.__name__)
def test_horovods_world_of_one(case: Callable[[TrainingWorld], None]) -> None:
    horovod_patches.init()
    case(WORLD)


@pytest.mark.parametrize("case", world_cases.CASES, ids=lambda case: case.__name__)
def test_torchs_world_of_one(case: Callable[[TrainingWorld], None]) -> None:
    alone = TorchTrainingWorld()
    with mock.patch.dict(os.environ):  # it leaves torchrun's variables there
        alone.init()
        try:
            case(alone)
        finally:
            alone.shutdown()


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [2, 3])
def test_horovods_world(size: int) -> None:
    run_cases([world_cases.__file__], size)


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [2, 3])
def test_torchs_world_where_no_horovod_can_be_imported(size: int) -> None:
    without = [sys.executable, "-c", WITHOUT_HOROVOD]
    run_cases([world_cases.__file__], size, python=without, HVD_ELASTIC_ENGINE="torch")


def test_ranks_on_two_hosts() -> None:
    local = in_each_rank(5, lambda world: (world.local_rank(), world.local_size()), ranks_per_host=2)
    assert local == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 1)]


def test_a_lost_rank_ends_what_the_others_wait_for() -> None:
    def work(world: ThreadTrainingWorld) -> str:
        if world.rank() == 1:
            return "lost"
        with pytest.raises(HorovodInternalError, match=r"rank \d waits for ranks \[1\]"):
            world.allgather(torch.zeros(1), name="gathered")
        return "alive"

    assert in_each_rank(3, work) == ["alive", "lost", "alive"]


def test_those_that_are_left_go_on_in_the_next_world_with_a_newcomer() -> None:
    meeting = Meeting(3)
    worlds = [ThreadTrainingWorld(meeting, rank) for rank in range(3)]
    left = worlds[1:]
    with pytest.raises(HorovodInternalError):
        together(left, lambda world: world.broadcast_object(None, root=0, name="state"))
    for each in left:
        each.shutdown()
        with pytest.raises(ValueError, match="in no world"):
            each.rank()
    worlds = next_world(left, newcomers=2)
    assert together(worlds, lambda world: world.allgather_object(world.rank(), name="ranks")) == [[0, 1, 2, 3]] * 4
    assert worlds[0].said == ["broadcast_object state", "allgather_object ranks"]


def test_ranks_that_call_different_operations_fail_the_test_at_once() -> None:
    def wait(world: ThreadTrainingWorld) -> None:
        world.allgather(torch.zeros(1), name=f"own.{world.rank()}")

    with pytest.raises(AssertionError, match="all ranks wait for each other"):
        in_each_rank(2, wait)

    def differ(world: ThreadTrainingWorld) -> None:
        if world.rank():
            world.allgather(torch.zeros(1), name="one")
        else:
            world.allreduce(torch.zeros(1), op=ReduceOp.SUM, name="one")

    with pytest.raises(HorovodInternalError, match=r"one: rank \d calls"):
        in_each_rank(2, differ)
