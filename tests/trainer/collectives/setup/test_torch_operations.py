"""What a newcomer gets for torch.distributed's operations before training; the group of this process has one rank."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore

from hvd_elastic.trainer.collectives.setup.setup_calls import SetupCalls
from hvd_elastic.trainer.collectives.setup.torch_operations import replace_functions
from tests.trainer.collectives.setup import setup_process
from tests.trainer.collectives.setup.setup_process import RefusedError, newcomer, refuse


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def went(script: Callable[[], object], *brought: torch.Tensor, calls: SetupCalls | None = None) -> SetupCalls:
    """A process that has gone through `script` over this engine."""
    return setup_process.went(calls or SetupCalls(limit_bytes=1 << 20), replace_functions, script, *brought)


def test_a_newcomer_gets_what_the_others_got() -> None:
    got: list[object] = []

    def script(value: float, size: int) -> None:
        tensor = torch.tensor([value])
        objects: list[object] = [value, "words"]
        distributed.broadcast_object_list(objects, src=0)
        everyone: list[object] = [None] * size
        distributed.all_gather_object(everyone, {"value": value})
        distributed.barrier()
        distributed.monitored_barrier()
        tensors = [torch.zeros(1)] * size
        distributed.all_gather(tensors, tensor)
        gathered = torch.zeros(size)
        distributed.all_gather_into_tensor(gathered, tensor)
        work = distributed.all_reduce(tensor, async_op=True)
        work.wait()
        assert work.is_completed()
        distributed.broadcast(sent := torch.tensor([value]), 0)
        sent += 1  # what is kept is what was sent
        got.append((objects, everyone, [each.tolist() for each in tensors], gathered.tolist(), tensor.tolist(), sent))

    first = went(lambda: script(1.0, 1))
    joined = went(lambda: script(2.0, 2), calls=newcomer(first))
    assert got[0] == ([1.0, "words"], [{"value": 1.0}], [[1.0]], [1.0], [1.0], torch.tensor([2.0]))
    assert got[1] == got[0]

    went(lambda: script(3.0, 3), calls=newcomer(joined))
    assert got[2] == got[0], "whoever has joined can tell"


def test_what_the_state_brings_is_left_as_it_is_and_the_rest_is_given() -> None:
    def script(model: torch.nn.Linear, teacher: torch.nn.Linear) -> None:
        for parameter in (*model.parameters(), *teacher.parameters()):
            distributed.broadcast(parameter.data, 0)

    def models() -> tuple[torch.nn.Linear, torch.nn.Linear]:
        return torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    (model, teacher), (own, its_teacher), (alone, alones_teacher) = models(), models(), models()
    first = went(lambda: script(model, teacher), *model.parameters())
    before = own.weight.clone()
    went(lambda: script(own, its_teacher), *own.parameters(), calls=newcomer(first))
    assert torch.equal(own.weight, before)
    assert torch.equal(its_teacher.weight, teacher.weight)

    standby = SetupCalls(limit_bytes=1 << 20)
    standby.begin(refuse, replace_functions)
    script(alone, alones_teacher)  # in a world of one
    newcomer(first, joins=standby)
    assert torch.equal(alones_teacher.bias, teacher.bias)


def test_more_than_can_be_kept_is_said_of_parameters_and_refused_of_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    went(lambda: distributed.broadcast(torch.zeros(1 << 19), 0))
    assert "broadcasts before training have sent 2 MiB that are not part of the State" in caplog.text
    with pytest.raises(RefusedError, match="1 MiB at most, and all_reduce is too large"):
        went(lambda: distributed.all_reduce(torch.zeros(1 << 19)))


def test_what_differs_by_rank_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"torch\.distributed\.scatter_object_list before the training function"):
        went(lambda: distributed.scatter_object_list([None], [1], src=0))


def test_a_newcomer_that_calls_something_else_is_refused() -> None:
    first = went(lambda: distributed.all_reduce(torch.zeros(1)))
    with pytest.raises(RefusedError, match=r"calls broadcast_object_list before .* had called all_reduce:"):
        went(lambda: distributed.broadcast_object_list([1], src=0), calls=newcomer(first))
    with pytest.raises(RefusedError, match="with another shape"):
        went(lambda: distributed.all_reduce(torch.zeros(2)), calls=newcomer(first))


def test_a_group_of_some_ranks_is_left_alone() -> None:
    def script() -> None:
        some = distributed.new_group([0])
        assert isinstance(some, distributed.ProcessGroup)
        distributed.all_reduce(torch.zeros(1), group=some)

    went(script, calls=newcomer(went(lambda: None)))


def test_outside_of_that_time_torch_is_asked() -> None:
    went(lambda: None)
    tensor = torch.ones(1)
    work = distributed.all_reduce(tensor, async_op=True)
    assert isinstance(work, distributed.Work)
    work.wait()
