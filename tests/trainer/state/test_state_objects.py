"""What becomes of the objects and values of a State: back to a commit, to another worker, from a checkpoint.

A worker that receives is a second State in this process. What Horovod would send is kept in between.
"""

import collections
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import horovod.torch as hvd
import pytest
import torch
from horovod.common.exceptions import HorovodInternalError
from torch import nn
from torch.optim import lr_scheduler

from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.state_objects import StateError


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))
    (tmp_path / "run").mkdir()


class Wire:
    """A world of two in one process: first rank 0 sends, then rank 1 receives. What was sent is kept by its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sent: dict[str, Any] = {}
        self._rank = 0
        self.cut_after: int | None = None
        """How many tensors arrive before the connection breaks."""
        monkeypatch.setattr(hvd, "rank", lambda: self._rank)
        monkeypatch.setattr(hvd, "broadcast_object", self._object)
        monkeypatch.setattr(hvd, "broadcast_async_", self._tensor)
        monkeypatch.setattr(hvd, "synchronize", self._synchronize)

    def send(self, sender: State, receiver: State) -> None:
        self._rank = 0
        sender._present.receive(0, in_place=False, joins=False)
        self._rank = 1
        try:
            receiver._present.receive(0, in_place=receiver._commits.last is not None, joins=True)
            receiver.save()
        finally:
            self._rank = 0

    def _object(self, value: Any, *, root_rank: int, name: str) -> Any:
        if self._rank == root_rank:
            self._sent[name] = pickle.dumps(value)
        return pickle.loads(self._sent[name])

    def _tensor(self, tensor: torch.Tensor, root_rank: int, *, name: str) -> str:
        if self._rank == root_rank:
            self._sent[name] = tensor.clone()
        elif self.cut_after != 0:
            tensor.copy_(self._sent[name])
            self.cut_after = None if self.cut_after is None else self.cut_after - 1
        return name

    def _synchronize(self, _: str) -> None:
        if self._rank and self.cut_after == 0:
            raise HorovodInternalError("a peer was lost")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


class Counting(nn.Module):
    """State that is no tensor, by torch's own protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.seen = 0

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


class CountingInTensors(Counting):
    """The same in a tensor that is made for each `state_dict()`."""

    def get_extra_state(self) -> Any:
        return torch.tensor([self.seen])

    def set_extra_state(self, state: Any) -> None:
        self.seen = int(state[0])


class Copying(nn.Module):
    """Its `state_dict()` has copies, as of a module that keeps its weights elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        register: Any = self._register_state_dict_hook
        register(lambda *args: args[1].update({k: v.clone() for k, v in args[1].items()}))


class Cached(nn.Module):
    """Computes something from its weights when they are loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.total = 0.0
        register: Any = self.register_load_state_dict_post_hook
        register(lambda module, _: module.add_up())

    def add_up(self) -> None:
        self.total = self.weight.sum().item()


@pytest.mark.parametrize("holds", [False, True], ids=["newcomer", "survivor"])
@pytest.mark.parametrize("make", [Counting, CountingInTensors, Copying, Cached, lambda: nn.Linear(300, 300)])
def test_what_is_received_is_loaded(make: Any, holds: bool, wire: Wire) -> None:
    """Whether or not a module's `state_dict()` has the tensors in which it keeps its state."""
    first, second = State(model=make()), State(model=make())
    if holds:
        second.save()
    weight = second.model.weight
    first.model.seen = 5
    if isinstance(first.model, Cached):
        first.model.add_up()
    wire.send(first, second)
    assert second.model.weight is weight
    assert torch.equal(weight, first.model.weight)
    if isinstance(first.model, Counting):
        assert second.model.seen == 5
    if isinstance(first.model, Cached):
        assert second.model.total == first.model.total


def test_training_on_after_receiving_shares_nothing_with_the_commit(wire: Wire) -> None:
    states = []
    for _ in range(2):
        model = nn.Linear(2, 2)
        states.append(
            State(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9), v=model.bias)
        )

    def step(state: Any) -> None:
        for parameter in state.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        state.optimizer.step()

    step(states[0])
    wire.send(*states)
    momentum = states[1].optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    weight = states[1].model.weight.detach().clone()
    assert torch.equal(weight, states[0].model.weight)
    step(states[1])
    states[1].restore()
    assert torch.equal(states[1].model.weight, weight)
    assert torch.equal(states[1].optimizer.state_dict()["state"][0]["momentum_buffer"], momentum)


@pytest.mark.parametrize("holds", [False, True], ids=["newcomer", "survivor"])
def test_a_broken_broadcast_leaves_nothing_half(holds: bool, wire: Wire) -> None:
    """A newcomer must not begin a job with half of another's weights, if all others die with the sender."""
    first, second = (State(model=nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))) for _ in range(2))
    if holds:
        second.save()
    before = [weight.tolist() for weight in second.model.parameters()]
    wire.cut_after = 1
    with pytest.raises(HorovodInternalError):
        wire.send(first, second)
    if holds:
        second.restore()
    assert [weight.tolist() for weight in second.model.parameters()] == before


class Best(NamedTuple):
    step: int
    weight: torch.Tensor


VALUES: dict[str, Any] = {
    "None": None,
    "number": 0.7,
    "Counter": collections.Counter(a=1),
    "defaultdict": collections.defaultdict(list, k=[1]),
    "OrderedDict": collections.OrderedDict(a=1),
    "namedtuple": Best(1, torch.ones(2)),
    "set": {1, 2},
    "parameter": nn.Parameter(torch.ones(2)),
    "frozen parameter": nn.Parameter(torch.ones(2), requires_grad=False),
    "conjugate": torch.full((2,), 1 + 2j).conj(),
    "sparse": torch.eye(2).to_sparse(),
    "mixed": [(torch.ones(1), {"a": collections.Counter()})],
}


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return type(value), value.requires_grad, value.dtype, value.layout, value.to_dense().tolist()
    if isinstance(value, list | tuple):
        return type(value), [described(each) for each in value]
    if isinstance(value, dict):
        return type(value), {key: described(each) for key, each in value.items()}
    return type(value), value


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("initial", [None, 0, [1]], ids=str)
def test_a_value_is_part_of_the_state_whatever_it_becomes(initial: Any, value: Any, wire: Wire) -> None:
    """As `State(best=None)`, and later `state.best = 0.7`."""
    first, second = State(best=initial), State(best=initial)
    first.sync()
    first.best = value
    before = described(value)
    first.commit()
    first.best = "undone"
    first.restore()
    assert described(first.best) == before
    wire.send(first, second)
    assert described(second.best) == before
    second.best = "undone"
    second.restore()
    assert described(second.best) == before


def test_a_value_that_becomes_an_object() -> None:
    """Going back to a commit before, it is the value again; to one with the object, the object."""
    state: Any = State(ema=None)
    state.sync()
    state.ema = ema = nn.Linear(1, 1)
    state.restore()
    assert state.ema is None
    state.ema = ema
    state.commit()
    weight = ema.weight.item()
    state.ema = None
    nn.init.zeros_(ema.weight)
    state.restore()
    assert state.ema is ema
    assert ema.weight.item() == weight
    state.ema = None
    state.commit()
    state.restore()
    assert state.ema is None


def test_an_object_that_a_newcomer_has_not_made_is_an_error(wire: Wire) -> None:
    first: Any = State(ema=None)
    first.ema = nn.Linear(1, 1)
    with pytest.raises(
        StateError, match=r"state\.ema must be loaded with load_state_dict\(\), but it is no object yet"
    ):
        wire.send(first, State(ema=None))


def test_an_optimizer_that_comes_later_has_the_factor() -> None:
    model = nn.Linear(1, 1, bias=False)
    state: Any = State(model=model, optimizer=None)
    state.scale_learning_rate("linear")
    state._present.progress.size, state._present.progress.factor_start = 2, 2.0
    state.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.weight.grad, before = torch.ones(1, 1), model.weight.item()
    state.optimizer.step()
    assert before - model.weight.item() == pytest.approx(1.0)
    state.commit()
    committed = model.weight.item()
    state.optimizer.step()
    state.restore()
    assert model.weight.item() == committed


def test_a_checkpoint_of_an_earlier_script(caplog: pytest.LogCaptureFixture) -> None:
    """What is gone is left out; what is new stays as it is; an object is never replaced by a value."""
    written: Any = State(model=nn.Linear(1, 1), ema=None, gone=1, gone_too=nn.Linear(1, 1), best=0.5)
    stored = written._present.tree()
    model, ema, added = nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)
    state: Any = State(model=model, ema=ema, added=added, best=None, count=3)
    state._present.objects.load_stored(stored)
    assert torch.equal(model.weight, written.model.weight)
    assert (state.ema, state.added, state.best, state.count) == (ema, added, 0.5, 3)
    assert not hasattr(state, "gone")
    assert [record.args for record in caplog.records] == [("ema",), ("added",)]


SCHEDULERS: dict[str, Any] = {
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [5, 10, 10]),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=60),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=10), lr_scheduler.MultiStepLR(o, [5, 10])], [10]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 4), lr_scheduler.MultiStepLR(o, [5, 10])]
    ),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS.keys())
def test_a_scheduler_goes_on_as_without_a_failure(make: Any, wire: Wire) -> None:
    def job() -> Any:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
        return State(optimizer=optimizer, scheduler=make(optimizer))

    def rates(state: Any, steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            state.optimizer.step()
            state.scheduler.step()
            found.append(float(state.optimizer.param_groups[0]["lr"]))
        return found

    expected = rates(job(), 30)
    state = job()
    state.sync()
    rates(state, 6)
    state.commit()
    rates(state, 2)
    state.restore()
    newcomer = job()
    wire.send(state, newcomer)
    assert rates(state, 24) == expected[6:]
    assert rates(newcomer, 24) == expected[6:]


@pytest.mark.parametrize("wraps", [(False, True), (True, False), (True, True)])
def test_a_checkpoint_does_not_know_whether_the_model_was_compiled(wraps: tuple[bool, bool]) -> None:
    def state(seed: int, *, compiled: bool) -> State:
        torch.manual_seed(seed)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped: Any = torch.compile(model) if compiled else model
        return State(model=wrapped, optimizer=optimizer)

    then, now = (state(seed, compiled=compiled) for seed, compiled in enumerate(wraps))
    then.save()
    assert set(then._commits.last["objects"]["model"]) == {"weight", "bias"}
    now._present.load_stored(then._commits.last)
    assert torch.equal(now.model.weight, then.model.weight)
    with torch.no_grad():
        now.model.weight.zero_()
    then.restore()
    assert then.model.weight.any()


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_a_weight_is_for_a_mean_over_the_workers(op: Any) -> None:
    model = nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op)
    state = State(model=model, optimizer=optimizer)
    if op == hvd.Average:
        assert state.weight == 1.0
    else:
        with pytest.raises(StateError, match=r"state\.optimizer adds the gradients"):
            _ = state.weight
