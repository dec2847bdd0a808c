"""What a process that joins gets for the operations that the others have behind them; Horovod's world has one rank."""

import inspect
from collections.abc import Callable, Iterator

import horovod.torch as hvd
import pytest
import torch
from horovod.torch import functions, mpi_ops

from hvd_elastic.trainer.collectives.collective_calls import NAMED
from hvd_elastic.trainer.collectives.setup.horovod_operations import replace_functions
from hvd_elastic.trainer.collectives.setup.setup_calls import SetupCalls
from hvd_elastic.trainer.elastic import horovod_patches
from testbed.thread_world import in_each_rank
from tests.trainer.collectives.setup import setup_process
from tests.trainer.collectives.setup.setup_process import RefusedError, newcomer, refuse


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    horovod_patches.init()
    names = ("_broadcast_async", "_allreduce_async")
    before = [getattr(mpi_ops, name) for name in names], functions.broadcast_async_, functions.rank
    yield
    after = [getattr(mpi_ops, name) for name in names], functions.broadcast_async_, functions.rank
    assert after == before, "Horovod's functions are put back"


def went(script: Callable[[], object], *brought: torch.Tensor, calls: SetupCalls | None = None) -> SetupCalls:
    """A process that has gone through `script` over this engine."""
    return setup_process.went(calls or SetupCalls(), replace_functions, script, *brought)


def test_a_newcomer_gets_what_the_others_got() -> None:
    got: list[object] = []

    def script(value: float) -> None:
        tensor = torch.tensor([value])
        got.append(hvd.broadcast_object({"words": value}, root_rank=0, name="words"))
        hvd.barrier()
        got.append(hvd.allgather_object(value, name="all"))
        got.append(hvd.allreduce(tensor, op=hvd.Sum).item())
        got.append(hvd.grouped_allreduce([tensor, tensor], op=hvd.Sum)[1].item())
        handle = hvd.broadcast_async_(tensor, 0)
        hvd.poll(handle)
        hvd.synchronize(handle)
        got.append(tensor.item())

    first = went(lambda: script(1.0))
    joined = went(lambda: script(2.0), calls=newcomer(first))
    assert got[5:] == got[:5] == [{"words": 1.0}, [1.0], 1.0, 1.0, 1.0]

    went(lambda: script(3.0), calls=newcomer(joined))
    assert got[10:] == got[:5], "whoever has joined can tell"


def test_what_the_state_brings_is_left_as_it_is_and_the_rest_is_given() -> None:
    def script(model: torch.nn.Linear, teacher: torch.nn.Linear) -> None:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        hvd.broadcast_parameters(teacher.state_dict(), root_rank=0)
        hvd.DistributedOptimizer(optimizer, groups=1)

    def models() -> tuple[torch.nn.Linear, torch.nn.Linear]:
        return torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    (model, teacher), (own, its_teacher) = models(), models()
    first = went(lambda: script(model, teacher), *model.parameters())
    before = own.weight.clone()
    went(lambda: script(own, its_teacher), *own.parameters(), calls=newcomer(first))
    assert torch.equal(own.weight, before)
    assert torch.equal(its_teacher.weight, teacher.weight)
    assert torch.equal(its_teacher.bias, teacher.bias)


def test_parameters_that_nobody_brings_are_refused() -> None:
    model = torch.nn.Linear(2, 2)
    joins = newcomer(went(lambda: None))
    with pytest.raises(RefusedError, match="not in the State"):
        went(lambda: hvd.broadcast_parameters(model.state_dict(), root_rank=0), calls=joins)


def test_a_standby_that_was_alone_before_gets_the_parameters_of_the_others() -> None:
    first, own = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    others = went(lambda: hvd.broadcast_parameters(first.state_dict(), root_rank=0))
    standby = SetupCalls()
    standby.begin(refuse, replace_functions)
    hvd.broadcast_parameters(own.state_dict(), root_rank=0)
    newcomer(others, joins=standby)
    standby.end(tuple)
    assert torch.equal(own.weight, first.weight)
    assert torch.equal(own.bias, first.bias)


def test_an_optimizers_state_is_harmless() -> None:
    def script() -> None:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups[0]["lr"] == 0.1

    went(script, calls=newcomer(went(script)))


def test_those_that_begin_together_are_given_nothing() -> None:
    begins = [SetupCalls(), SetupCalls()]
    in_each_rank(2, lambda world: begins[world.rank()].meet(world))
    got: list[object] = []
    went(lambda: got.append(hvd.broadcast_object("own", root_rank=0)), calls=begins[1])
    assert got == ["own"]


def test_a_newcomer_that_calls_something_else_is_refused() -> None:
    first = went(lambda: hvd.broadcast_object("a", root_rank=0, name="words"))
    with pytest.raises(RefusedError, match=r"calls allreduce loss before .* had called broadcast words.sz"):
        went(lambda: hvd.allreduce(torch.zeros(1), name="loss"), calls=newcomer(first))
    with pytest.raises(RefusedError, match=r"calls allreduce before .* had called nothing more"):
        went(lambda: hvd.allreduce(torch.zeros(1)), calls=newcomer(went(lambda: None)))
    reduces = went(lambda: hvd.allreduce(torch.zeros(2), name="loss"))
    with pytest.raises(RefusedError, match="with another shape"):
        went(lambda: hvd.allreduce(torch.zeros(3), name="loss"), calls=newcomer(reduces))


def test_more_than_can_be_kept_is_refused_in_the_first_world() -> None:
    def script() -> None:
        for _ in range(3):
            hvd.broadcast_(torch.zeros(1 << 20), 0)

    with pytest.raises(RefusedError, match=r"10 MiB at most, and broadcast is too large.*make it a value of the State"):
        went(script, calls=SetupCalls(limit_bytes=10 << 20))
    went(script, calls=SetupCalls(limit_bytes=12 << 20))


def test_what_differs_by_rank_is_refused_in_the_first_world() -> None:
    with pytest.raises(RefusedError, match=r"hvd\.alltoall before the training function"):
        went(lambda: hvd.alltoall(torch.zeros(1)))


def test_horovod_has_what_is_replaced() -> None:
    for name in NAMED:
        parameters = set(inspect.signature(getattr(mpi_ops, name)).parameters)
        assert {"name", "process_set"} <= parameters, name
        assert parameters & {"output", "outputs"}, name
    for name in ("rank", "size", "broadcast_async_"):
        assert callable(getattr(functions, name))
