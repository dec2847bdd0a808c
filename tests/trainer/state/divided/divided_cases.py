"""Run on each rank of a static world over torch.distributed, with those of `share_cases.py`.

The model has parameters with fewer rows than there are ranks, tied ones, a frozen one, one that is left out of the
division, and a buffer. What it comes to must be what the plain model comes to with the plain optimizer.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import FileStore, HashStore
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives import collective_calls
from hvd_elastic.trainer.collectives.this_world import TORCH
from hvd_elastic.trainer.sharding import share_transfer
from hvd_elastic.trainer.state.elastic_state import State
from tests.trainer.state.share_cases import ShareCases, run

ROWS = 24
"""Of the batch of all ranks together."""


class Net(nn.Module):
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        linear = [nn.Linear(6, 6) for _ in range(3)]
        self.blocks = nn.ModuleList(nn.Sequential(each, nn.Tanh()) for each in linear)
        self.narrow = nn.Linear(6, 2)
        self.widen = nn.Linear(2, 6)
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))
        linear[1].bias.requires_grad_(False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embedding(numbers)
        for block in self.blocks:
            x = x + block(x)
        x = x + self.widen(torch.tanh(self.narrow(x))) * self.scale
        self.seen += 1
        outcome: torch.Tensor = self.head(x)
        return outcome


def plain(seed: int = 0) -> tuple[Net, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = Net()
    return model, optimizer_of(model)


def optimizer_of(model: Net) -> torch.optim.AdamW:
    groups: list[dict[str, Any]] = [
        {"params": [weight for block in model.blocks for weight in block.parameters()], "lr": 0.02},
        {"params": [model.embedding.weight, *model.narrow.parameters(), *model.widen.parameters()]},
        {"params": [model.scale], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


def divided(seed: int = 0) -> tuple[Net, torch.optim.AdamW]:
    """The same, as a script divides it: block by block, and then the root."""
    torch.manual_seed(seed)
    model = Net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model.narrow, reshard_after_forward=False)
    fully_shard(model, ignored_params={model.scale})
    return model, optimizer_of(model)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    numbers, targets = torch.randint(0, 11, (2, ROWS), generator=generator)
    return numbers, targets


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.tensor_split(distributed.get_world_size())[distributed.get_rank()]


def step_divided(model: Net, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
    """Take a step, with clipping. `scale`, which is not divided, is averaged here as DistributedDataParallel would."""
    numbers, targets = map(own_part, batch(step))
    loss = nn.functional.cross_entropy(model(numbers), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    scale = model.scale.grad
    assert scale is not None
    distributed.all_reduce(scale)
    scale /= distributed.get_world_size()
    norm = nn.utils.clip_grad_norm_([weight for weight in model.parameters() if weight is not model.scale], 0.5)
    optimizer.step()
    optimizer.zero_grad()
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def step_plain(model: Net, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
    numbers, targets = batch(step)
    nn.functional.cross_entropy(model(numbers), targets).backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_([weight for weight in model.parameters() if weight is not model.scale], 0.5)
    optimizer.step()
    optimizer.zero_grad()
    return norm


def reference_after(steps: int) -> tuple[Net, torch.optim.AdamW]:
    model, optimizer = plain()
    for step in range(steps):
        step_plain(model, optimizer, step)
    return model, optimizer


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor.detach()


def is_like(model: nn.Module, reference: nn.Module) -> bool:
    pairs = zip(model.named_parameters(), reference.named_parameters(), strict=True)
    return all(
        name == known and torch.allclose(whole(weight), other, rtol=1e-4, atol=1e-5)
        for (name, weight), (known, other) in pairs
    )


def holds_only_its_part(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Whether this rank has no more rows of each divided tensor than its part."""
    size = distributed.get_world_size()
    parts = [weight for weight in model.parameters() if isinstance(weight, DTensor)]
    states = [each for part in parts for each in optimizer.state[part].values() if isinstance(each, DTensor)]
    return all(len(each.to_local()) <= -(-each.shape[0] // size) for each in [*parts, *states]) and len(parts) > 8


# --- In a State ------------------------------------------------------------------------------------------------------


class OfAModel(ShareCases):
    """With the model and its optimizer divided."""

    names = ("model", "optimizer")

    def fresh(self, checkpoint: str | None) -> State:
        model, optimizer = divided()
        return State(model=model, optimizer=optimizer, note="", checkpoint=checkpoint)

    def step(self, state: State, number: int) -> torch.Tensor:
        return step_divided(state.model, state.optimizer, number)

    def lose(self, state: State) -> None:
        with torch.no_grad():
            for weight in state.model.parameters():
                (weight.to_local() if isinstance(weight, DTensor) else weight).fill_(float("nan"))
        state.optimizer.state.clear()

    def is_undisturbed(self, state: State, steps: int) -> bool:
        assert holds_only_its_part(state.model, state.optimizer)
        assert state.model.seen == steps
        return is_like(state.model, reference_after(steps)[0])

    def check_saved(self, saved: Any, steps: int) -> None:
        is_that_of(reference_after(steps), saved["model"], saved["optimizer"])


SHARES = OfAModel()


def steps_are_those_of_the_plain_optimizer() -> None:
    state = SHARES.in_training(0)
    reference, optimizer = plain()
    for step in range(4):
        norm = SHARES.step(state, step)
        assert norm.item() == pytest.approx(step_plain(reference, optimizer, step).item(), rel=1e-4)
        assert is_like(state.model, reference)
    assert holds_only_its_part(state.model, state.optimizer)


def a_world_of_one_is_the_plain_optimizer_to_the_bit() -> None:
    state = SHARES.in_training(3)
    reference, _ = reference_after(3)
    pairs = zip(state.model.parameters(), reference.parameters(), strict=True)
    assert all(torch.equal(whole(weight), other) for weight, other in pairs)


def waits_for_others_are_told() -> None:
    """So a slow rank is found, and one that waits for ever can be named."""
    state = SHARES.in_training(1)
    said: set[str] = set()
    calls, before = collective_calls.THIS_PROCESS, collective_calls.WAITED.seconds
    begin = calls.wait_begins

    def note(operation: str) -> None:
        said.add(operation)
        begin(operation)

    with mock.patch.object(calls, "wait_begins", note):
        SHARES.step(state, 1)
    assert said == {"allgather parameters", "reducescatter gradients"}
    assert collective_calls.WAITED.seconds > before


def a_model_without_memory_is_filled_part_by_part() -> None:
    """As scripts build what is too large for one: on `meta`, divided, and then given memory and first weights."""
    known = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    fully_shard(model[0])
    fully_shard(model)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for weight, other in zip(model.parameters(), known.parameters(), strict=True):
            assert isinstance(weight, DTensor)
            weight.copy_(distribute_tensor(other.detach(), weight.device_mesh, weight.placements))
            other.copy_(weight.full_tensor())  # rank 0's
    State(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)).sync()
    assert is_like(model, known)


def a_pass_that_an_error_has_ended_is_undone() -> None:
    state = SHARES.in_training()

    def fail(*_: object) -> None:
        raise RuntimeError("Connection closed by peer")

    for broken in (state.model.widen, state.model.blocks[0][0]):
        hook = broken.register_full_backward_hook(fail)
        with pytest.raises(RuntimeError, match="closed by peer"):
            SHARES.step(state, 8)
        hook.remove()
        state.restore()
        state.sync()
    hook = state.model.blocks[2].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="closed by peer"):
        SHARES.step(state, 8)
    hook.remove()
    state.restore()
    state.sync()
    SHARES.goes_on_as_undisturbed(state, 2)


def ranks_that_change_places_change_shares() -> None:
    """In a world of the same processes; what each holds is of the rank that it was, whatever it is now."""
    state = SHARES.in_training(3)
    size, folder = distributed.get_world_size(), [tempfile.mkdtemp()]
    distributed.broadcast_object_list(folder)
    os.environ["HOROVOD_RANK"] = str((distributed.get_rank() + 1) % size)
    TORCH.shutdown()
    TORCH._open_store = lambda: FileStore(f"{folder[0]}/store", size)
    TORCH.init()
    state.sync()
    SHARES.has_copies(state)
    SHARES.goes_on_as_undisturbed(state, 3)


def workers_are_compared_without_their_parts() -> None:
    """What each rank has a part of is no difference; what all must have alike still is."""
    state = SHARES.in_training(1)
    assert not state._replicas.compare(1, is_restorable=False)
    before = [whole(weight) for weight in state.model.parameters()]
    with torch.no_grad():
        state.model.scale += distributed.get_rank()
    assert state._replicas.compare(1, is_restorable=False), "all go on with what rank 0 has"
    assert all(torch.equal(one, whole(other)) for one, other in zip(before, state.model.parameters(), strict=True))


def is_that_of(reference: tuple[Net, torch.optim.AdamW], model: Any, optimizer: Any) -> None:
    """Whether plain states are those of the reference, and load into it."""
    expected = reference[0].state_dict()
    assert list(model) == list(expected)
    assert all(torch.allclose(model[name], value, rtol=1e-4, atol=1e-5) for name, value in expected.items())
    states = reference[1].state_dict()["state"]
    assert optimizer["state"].keys() == states.keys()
    for number, values in states.items():
        assert values.keys() == optimizer["state"][number].keys()
        for name, value in values.items():
            assert torch.allclose(optimizer["state"][number][name], value, rtol=1e-4, atol=1e-5)
    again = plain(seed=5)
    again[0].load_state_dict(model)
    again[1].load_state_dict(optimizer)
    for each in (reference, again):
        step_plain(*each, 9)
    assert is_like(again[0], reference[0])


def it_restores_in_a_world_of_another_size() -> None:
    state = SHARES.in_training(0, checkpoint=f"file://{sys.argv[2]}")
    assert is_like(state.model, reference_after(2)[0])
    SHARES.goes_on_as_undisturbed(state, 2)


def a_plain_models_checkpoint() -> None:
    """In a world of one: what the cases restore that divide the model."""
    model, optimizer = plain()
    state = State(model=model, optimizer=optimizer, note="", checkpoint=f"file://{sys.argv[2]}")
    state.sync()
    for step in range(2):
        step_plain(model, optimizer, step)
        state.note = f"after {step}"
        state._commit_now()
    state.end_training()
    state._commits.durable.close()


def a_model_divided_alone_is_divided_again_with_others() -> None:
    """As in a process that has formed a world of one (`standby: solo`): all go on with what rank 0 has drawn."""
    distributed.init_process_group("gloo", rank=0, world_size=1, store=HashStore())
    rank = int(os.environ["HOROVOD_RANK"])
    model, optimizer = divided(seed=rank)
    state = State(model=model, optimizer=optimizer, note="")
    distributed.destroy_process_group()
    elastic.init()
    assert distributed.get_rank() == rank
    state.sync()
    SHARES.take_steps(state, range(2))
    SHARES.goes_on_as_undisturbed(state, 2)


def cases() -> Iterator[Callable[[], None]]:
    """Those of this process's arguments: a world's size, or what follows it: a folder of checkpoints, and one case."""
    size, *of_one_case = sys.argv[1:]
    if of_one_case:
        yield globals().get(of_one_case[1]) or getattr(SHARES, of_one_case[1])
        return
    yield steps_are_those_of_the_plain_optimizer
    yield a_model_without_memory_is_filled_part_by_part
    yield a_pass_that_an_error_has_ended_is_undone
    if int(size) == 1:
        yield a_world_of_one_is_the_plain_optimizer_to_the_bit
    else:
        yield waits_for_others_are_told
        yield ranks_that_change_places_change_shares
        yield workers_are_compared_without_their_parts
    yield from SHARES.of_size(int(size))


if __name__ == "__main__":
    if a_model_divided_alone_is_divided_again_with_others.__name__ not in sys.argv:
        elastic.init()
    share_transfer.MESSAGE_BYTES = 80  # type: ignore[misc]
    run(cases())
