"""Run on each rank of a static world, with those of `share_cases.py`.

Gradients are multiples of 1/8 that follow from the rank, so that their sums are exact in any order: what the sharded
optimizer comes to must be what the plain one comes to, to the bit, at every size.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import nn, optim

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.sharding import parameter_buckets, share_transfer, step_communication
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.sharded_content import ShardedContent
from hvd_elastic.trainer.sharding.shares import WHOLE
from hvd_elastic.trainer.state.elastic_state import State
from tests.trainer.state.share_cases import ShareCases, run

KINDS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    (optim.Adam, {"lr": 0.01, "amsgrad": True}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (optim.Adagrad, {"lr": 0.1}),
    (optim.RAdam, {"lr": 0.01}),
)


def model_of(seed: int = 0) -> nn.Sequential:
    """Parameters that end within buckets, one that spans several, one that is frozen, and one that is not row-major."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(7, 40), nn.Conv2d(3, 4, 3), nn.Linear(5, 3), nn.BatchNorm1d(3))
    model[1].to(memory_format=torch.channels_last)
    model[2].bias.requires_grad_(False)
    return model


def groups_of(model: nn.Sequential) -> list[dict[str, Any]]:
    return [
        {"params": list(model[0].parameters()), "lr": 0.02},
        {"params": [weight for layer in model[1:] for weight in layer.parameters()]},
    ]


def set_gradients(model: nn.Module, step: int, rank: int) -> None:
    for number, weight in enumerate(model.parameters()):
        if weight.requires_grad:
            generator = torch.Generator().manual_seed(1000 * step + 10 * number + rank)
            gradient = torch.randint(-64, 64, weight.shape, generator=generator).float() / 8
            weight.grad = gradient.to(memory_format=torch.channels_last) if weight.dim() == 4 else gradient


def set_mean_gradients(model: nn.Module, step: int, size: int) -> None:
    """What the mean over all ranks must be, computed here alone as Horovod does: a sum, and one multiplication."""
    set_gradients(model, step, 0)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    total = [_gradient(weight) for weight in weights]
    for rank in range(1, size):
        set_gradients(model, step, rank)
        total = [one + _gradient(weight) for one, weight in zip(total, weights, strict=True)]
    for weight, one in zip(weights, total, strict=True):
        weight.grad = one * (1.0 / size)


def _gradient(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None
    return weight.grad


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(mine, its) for mine, its in pairs)


def steps_are_those_of_the_plain_optimizer() -> None:
    for kind, options in KINDS:
        model, reference = model_of(), model_of()
        sharded = elastic.ShardedOptimizer(groups_of(model), kind, **options)
        plain = kind(groups_of(reference), **options)
        assert len(sharded.buckets) > 3
        schedulers = [optim.lr_scheduler.StepLR(each, 2, gamma=0.5) for each in (sharded, plain)]
        for step in range(5):
            set_gradients(model, step, hvd.rank())
            sharded.step()
            set_mean_gradients(reference, step, hvd.size())
            plain.step()
            for scheduler in schedulers:
                scheduler.step()
            assert same(model, reference), (kind, step)
        kept = sum(each.numel() for one in sharded.content.shards for each in one.values())
        whole = sum(
            v.numel() for each in plain.state.values() for v in each.values() if isinstance(v, torch.Tensor) and v.dim()
        )
        assert kept <= whole / hvd.size() + 3 * len(sharded.buckets), "a rank keeps its share"


def model_of_dtypes() -> nn.ParameterList:
    torch.manual_seed(0)
    return nn.ParameterList(
        torch.randn(shape, dtype=dtype)
        for shape, dtype in (
            ((40, 7), torch.bfloat16),
            ((11, 6), torch.complex64),
            ((9,), torch.bfloat16),
            ((5, 3), None),
        )
    )


def set_gradients_of_dtypes(model: nn.ParameterList, step: int, ranks: range) -> None:
    """The mean over some ranks, as Horovod has it: added up with more digits, and rounded once."""
    for number, weight in enumerate(model):
        wide = torch.float32 if weight.dtype == torch.bfloat16 else weight.dtype
        drawn = [torch.Generator().manual_seed(1000 * step + 10 * number + rank) for rank in ranks]
        given = [torch.randn(weight.shape, generator=each, dtype=weight.dtype).to(wide) for each in drawn]
        weight.grad = (sum(given[1:], given[0]) * (1.0 / len(ranks))).to(weight.dtype)


def weights_in_bfloat16_and_complex_ones_are_those_of_the_plain_optimizer() -> None:
    for kind, options in KINDS:
        model, reference = model_of_dtypes(), model_of_dtypes()
        sharded, plain = elastic.ShardedOptimizer(model, kind, **options), kind(reference, **options)
        for step in range(4):
            set_gradients_of_dtypes(model, step, range(hvd.rank(), hvd.rank() + 1))
            set_gradients_of_dtypes(reference, step, range(hvd.size()))
            if step == 3:
                norm, expected = sharded.clip_grad_norm_(0.5), nn.utils.clip_grad_norm_(reference, 0.5)
                assert norm.item() == pytest.approx(expected.item(), rel=1e-2)
            sharded.step()
            plain.step()
            for mine, its in zip(model, reference, strict=True):
                few = 2.0**-6 if mine.dtype == torch.bfloat16 else 1e-4
                assert torch.allclose(mine, its, rtol=few, atol=few), (kind, step, mine.dtype)
        everyone = hvd.allgather_object([_bytes(weight) for weight in model])
        assert all(each == everyone[0] for each in everyone), "the same bits on every rank"


def _bytes(weight: torch.Tensor) -> list[int]:
    numbers: list[int] = weight.detach().flatten().view(torch.uint8).tolist()
    return numbers


def _scatters_on_any_device(flat: torch.Tensor, world: TrainingWorld) -> bool:
    return flat.numel() >= world.size()


def a_reducescatter_comes_to_the_same() -> None:
    decide, step_communication.scatters = step_communication.scatters, _scatters_on_any_device
    try:
        steps_are_those_of_the_plain_optimizer()
        weights_in_bfloat16_and_complex_ones_are_those_of_the_plain_optimizer()
    finally:
        step_communication.scatters = decide


def trained(kind: Any = optim.AdamW, steps: int = 2, **options: Any) -> tuple[nn.Sequential, elastic.ShardedOptimizer]:
    model = model_of()
    optimizer = elastic.ShardedOptimizer(groups_of(model), kind, **{"lr": 0.01, **options})
    train(model, optimizer, range(steps))
    return model, optimizer


def train(model: nn.Module, optimizer: elastic.ShardedOptimizer, steps: range) -> None:
    for step in steps:
        set_gradients(model, step, hvd.rank())
        optimizer.step()


def all_of_it_is_a_plain_state_dict() -> None:
    for kind, options in KINDS:
        model, optimizer = trained(kind, **options)
        whole = hvd.broadcast_object(optimizer.full_state_dict(), root_rank=0, name="whole")
        reference = model_of()
        reference.load_state_dict(model.state_dict())
        plain = kind(groups_of(reference), **options)
        plain.load_state_dict(whole)
        again = model_of()
        again.load_state_dict(model.state_dict())
        loaded = elastic.ShardedOptimizer(groups_of(again), kind, **options)
        loaded.load_state_dict(whole)
        for step in range(2, 4):
            train(model, optimizer, range(step, step + 1))
            train(again, loaded, range(step, step + 1))
            set_mean_gradients(reference, step, hvd.size())
            plain.step()
            assert same(model, reference), kind
            assert same(model, again), kind


def gradients_are_clipped_by_the_norm_of_all() -> None:
    model, optimizer = trained()
    reference, plain = model_of(), None
    reference.load_state_dict(model.state_dict())
    plain = optim.AdamW(groups_of(reference), lr=0.01)
    plain.load_state_dict(hvd.broadcast_object(optimizer.full_state_dict(), root_rank=0, name="whole"))
    set_gradients(model, 9, hvd.rank())
    norm = optimizer.clip_grad_norm_(0.5)
    optimizer.step()
    set_mean_gradients(reference, 9, hvd.size())
    expected = nn.utils.clip_grad_norm_([w for w in reference.parameters() if w.requires_grad], 0.5)
    plain.step()
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for mine, its in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(mine, its, rtol=1e-5, atol=1e-7)


def a_gradient_scaler_goes_as_with_horovod() -> None:
    """Gradients are averaged, unscaled and looked through for overflows: all ranks step, or none does."""
    model, optimizer = trained()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = [weight.detach().clone() for weight in model.parameters()]
    scaler.scale(torch.ones(()))
    set_gradients(model, 2, hvd.rank())
    with pytest.raises(ShardingError, match=r"optimizer\.synchronize"):
        scaler.step(optimizer)
    scaler.update()
    for overflow in (True, False):
        set_gradients(model, 2, hvd.rank())
        if overflow and hvd.rank() == hvd.size() - 1:
            _gradient(next(model.parameters()))[0, 0] = float("inf")
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        stayed = all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
        assert stayed == overflow
    assert scaler.get_scale() == 4.0


def what_cannot_work_is_said() -> None:
    model, optimizer = trained()
    with pytest.raises(ShardingError, match="Give it all groups at once"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ShardingError, match="does not take a ShardedOptimizer"):
        hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    embedding = nn.Embedding(5, 3, sparse=True)
    sparse = elastic.ShardedOptimizer(embedding.parameters(), optim.SGD, lr=0.1)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ShardingError, match="parameter 0 is sparse"):
        sparse.step()
    share = {**optimizer.state_dict(), "share": {"rank": hvd.rank() + 1, "size": hvd.size() + 2}}
    optimizer.load_state_dict(share)
    with pytest.raises(ShardingError, match=f"it has the share of rank {hvd.rank() + 1} of {hvd.size() + 2}"):
        optimizer.step()
    plain = optim.AdamW(model.parameters(), lr=0.01)
    set_gradients(model, 1, 0)
    plain.step()
    model[0].weight.grad = None
    plain.step()
    with pytest.raises(ShardingError, match="a different number of times"):
        elastic.ShardedOptimizer(model.parameters(), optim.AdamW, lr=0.01).load_state_dict(plain.state_dict())


# --- In a State ------------------------------------------------------------------------------------------------------


def reference_after(steps: int, size: int | None = None) -> tuple[nn.Module, Any]:
    """The undisturbed run without shards. `size`: over how many ranks the gradients are averaged."""
    reference = model_of(seed=0)
    plain = optim.AdamW(groups_of(reference), lr=0.01)
    for step in range(steps):
        set_mean_gradients(reference, step, size or hvd.size())
        plain.step()
    return reference, plain


class OfAnOptimizer(ShareCases):
    """With the optimizer alone shared out."""

    names = ("optimizer",)

    def fresh(self, checkpoint: str | None) -> State:
        model = model_of(seed=hvd.rank())
        optimizer = elastic.ShardedOptimizer(groups_of(model), optim.AdamW, lr=0.01)
        return State(model=model, optimizer=optimizer, note="", checkpoint=checkpoint)

    def step(self, state: State, number: int) -> None:
        train(state.model, state.optimizer, range(number, number + 1))

    def lose(self, state: State) -> None:
        for weight in state.model.parameters():
            weight.data.fill_(float("nan"))
        state.optimizer.place(ShardedContent.empty(state.optimizer.buckets, WHOLE))

    def is_undisturbed(self, state: State, steps: int) -> bool:
        return same(state.model, reference_after(steps)[0])

    def check_saved(self, saved: Any, steps: int) -> None:
        is_that_of(reference_after(steps)[1], saved["optimizer"])


SHARES = OfAnOptimizer()


def is_that_of(plain: Any, whole: Any) -> None:
    """Whether a plain state is that of the reference, to the bit."""
    expected = plain.state_dict()["state"]
    assert whole["state"].keys() == expected.keys()
    for number, values in expected.items():
        assert values.keys() == whole["state"][number].keys()
        assert all(torch.equal(value, whole["state"][number][name]) for name, value in values.items())


def it_restores_in_a_world_of_another_size() -> None:
    state = SHARES.in_training(0, checkpoint=f"file://{sys.argv[2]}")
    assert state.note == "after 1"
    reference, plain = reference_after(2, size=int(sys.argv[3]))
    assert same(state.model, reference)
    whole = state.optimizer.full_state_dict()
    if hvd.rank() == 0:
        is_that_of(plain, whole)
    SHARES.take_steps(state, range(2, 3))
    set_mean_gradients(reference, 2, hvd.size())
    plain.step()
    assert same(state.model, reference)


def cases() -> Iterator[Callable[[], None]]:
    """Those of this process's arguments: a world's size, a folder of checkpoints, the size of the world before."""
    size, *folder = sys.argv[1:]
    if folder:
        is_second = len(folder) > 1
        yield it_restores_in_a_world_of_another_size if is_second else SHARES.a_durable_checkpoint_is_the_plain_one
        return
    yield steps_are_those_of_the_plain_optimizer
    yield weights_in_bfloat16_and_complex_ones_are_those_of_the_plain_optimizer
    yield all_of_it_is_a_plain_state_dict
    yield gradients_are_clipped_by_the_norm_of_all
    yield a_gradient_scaler_goes_as_with_horovod
    yield what_cannot_work_is_said
    if int(size) > 1:
        yield a_reducescatter_comes_to_the_same
    yield from SHARES.of_size(int(size))


if __name__ == "__main__":
    elastic.init()
    parameter_buckets.BUCKET_ELEMENTS = 100  # type: ignore[misc]
    share_transfer.MESSAGE_BYTES = 80  # type: ignore[misc]
    run(cases())
