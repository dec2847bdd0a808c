"""What scripts call of Horovod, with weights in bfloat16 and complex ones: on each rank of a world."""

from collections.abc import Callable
from typing import Any, Final

import horovod.torch as hvd
import pytest
import torch
from torch import nn

from hvd_elastic.trainer.elastic import horovod_patches

KINDS: Final = (torch.bfloat16, torch.float32, torch.complex64, torch.float16)


def model_of(seed: int) -> nn.ParameterDict:
    """One weight of each dtype."""
    generator = torch.Generator().manual_seed(seed)
    return nn.ParameterDict(
        {
            f"weight{number}": nn.Parameter(torch.randn(5, 3, generator=generator, dtype=dtype))
            for number, dtype in enumerate(KINDS)
        }
    )


def loss_of(model: nn.ParameterDict, step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    given = [torch.randn(5, 3, generator=generator, dtype=weight.dtype) for weight in model.values()]
    parts = [(weight * each).abs().float().sum() for weight, each in zip(model.values(), given, strict=True)]
    return torch.stack(parts).sum()


def step_alone(model: nn.ParameterDict, optimizer: torch.optim.Optimizer, step: int) -> None:
    """What all ranks' step must come to: the mean of all gradients, added up with more digits."""
    total = {name: torch.zeros_like(weight, dtype=_wide(weight.dtype)) for name, weight in model.items()}
    for rank in range(hvd.size()):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()  # type: ignore[no-untyped-call]
        for name, weight in model.items():
            total[name] += weight.grad
    for name, weight in model.items():
        weight.grad = (total[name] / hvd.size()).to(weight.dtype)
    optimizer.step()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    assert one.dtype == other.dtype
    few = {torch.bfloat16: 2.0**-6, torch.float16: 2.0**-8}.get(one.dtype, 1e-5)
    return torch.allclose(one, other, rtol=few, atol=few)


def is_the_same_everywhere(tensors: list[torch.Tensor]) -> bool:
    mine = [tensor.detach().flatten().view(torch.uint8).tolist() for tensor in tensors]
    return all(each == mine for each in hvd.allgather_object(mine))


def distributed(model: nn.ParameterDict, **options: Any) -> Any:
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), **options
    )


def the_optimizer_averages_what_all_have() -> None:
    groups_of: tuple[dict[str, Any], ...] = (
        {},
        {"groups": 1},
        {"groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"backward_passes_per_step": 1, "op": hvd.Average},
    )
    for options in groups_of:
        model, reference = model_of(0), model_of(0)
        optimizer = distributed(model, **options)
        plain = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step, hvd.rank()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step_alone(reference, plain, step)
        for name, weight in model.items():
            assert is_near(weight, reference[name]), (options, weight.dtype)
        assert is_the_same_everywhere(list(model.values())), options


def compression_sends_bfloat16_as_float16() -> None:
    model, reference = model_of(0), model_of(0)
    optimizer = distributed(model, compression=hvd.Compression.fp16)
    loss_of(model, 0, hvd.rank()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    step_alone(reference, torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9), 0)
    for name, weight in model.items():
        assert torch.allclose(weight, reference[name], rtol=2.0**-6, atol=2.0**-6), weight.dtype
    assert is_the_same_everywhere(list(model.values()))


def a_model_and_an_optimizer_are_broadcast() -> None:
    model = model_of(hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    flags = {"mask": torch.full((3,), hvd.rank() == 0), "number": torch.tensor(float(hvd.rank())).bfloat16()}
    hvd.broadcast_parameters(flags, root_rank=0)
    assert flags["mask"].all()
    assert flags["number"] == 0
    first = model_of(0)
    assert all(torch.equal(weight, first[name]) for name, weight in model.items())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if hvd.rank() == 0:
        loss_of(model, 0, 0).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    kept = [value for each in optimizer.state.values() for value in each.values()]
    assert len(kept) == 3 * len(KINDS)
    assert is_the_same_everywhere(kept)


def single_calls_keep_dtype_and_place() -> None:
    total = sum(range(hvd.size()))
    for dtype in KINDS:
        own = torch.full((2, 2), float(hvd.rank()), dtype=dtype)
        assert torch.equal(hvd.allreduce(own, op=hvd.Sum), torch.full((2, 2), float(total), dtype=dtype))
        assert torch.equal(own, torch.full((2, 2), float(hvd.rank()), dtype=dtype))
        assert hvd.allreduce_(own, op=hvd.Sum) is own
        assert torch.equal(own, torch.full((2, 2), float(total), dtype=dtype))
        assert torch.equal(hvd.broadcast(own + hvd.rank(), root_rank=1), own + 1)
        leaf = torch.ones(2, dtype=dtype, requires_grad=True)
        (hvd.allreduce(leaf, op=hvd.Sum) * (hvd.rank() + 1)).backward(torch.ones(2, dtype=dtype))
        assert leaf.grad is not None
        assert torch.equal(leaf.grad, torch.full((2,), float(total + hvd.size()), dtype=dtype))


def groups_may_be_of_many_dtypes() -> None:
    for first in range(len(KINDS)):
        kinds = KINDS[first:] + KINDS[:first]
        own = [torch.full((hvd.size(), 2), float(hvd.rank()), dtype=dtype) for dtype in kinds]
        total = float(sum(range(hvd.size())))
        for reduced in (hvd.grouped_allreduce(own, op=hvd.Sum), hvd.grouped_reducescatter(own, op=hvd.Sum)):
            assert [each.dtype for each in reduced] == list(kinds)
            assert all((each == total).all() for each in reduced)
        rows = torch.arange(float(hvd.size())).repeat_interleave(hvd.size())
        for gathered in hvd.grouped_allgather(own):
            assert torch.equal(gathered[:, 0], rows.to(gathered.dtype))
        assert all(one is other for one, other in zip(hvd.grouped_allreduce_(own, op=hvd.Sum), own, strict=True))
        assert all((each == total).all() for each in own)


def sparse_gradients_are_gathered() -> None:
    embedding = nn.Embedding(6, 3, sparse=True, dtype=torch.bfloat16)
    nn.init.ones_(embedding.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0), embedding.named_parameters())
    embedding(torch.tensor([hvd.rank(), 5])).sum().backward()
    optimizer.step()
    expected = [1 - 1 / hvd.size()] * hvd.size() + [1.0] * (5 - hvd.size()) + [0.0]
    assert is_near(embedding.weight[:, 0], torch.tensor(expected).bfloat16())


def what_has_no_order_is_refused() -> None:
    with pytest.raises(ValueError, match="complex tensors can be averaged and summed"):
        hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Max)
    with pytest.raises(ValueError, match="complex tensors can be averaged and summed"):
        hvd.grouped_allreduce([torch.ones(2), torch.ones(2, dtype=torch.complex64)], op=hvd.Product)
    most = hvd.allreduce(torch.tensor([hvd.rank(), -hvd.rank()]).bfloat16(), op=hvd.Max)
    assert most.tolist() == [hvd.size() - 1, 0]


CASES: Final[list[Callable[[], None]]] = [
    the_optimizer_averages_what_all_have,
    compression_sends_bfloat16_as_float16,
    a_model_and_an_optimizer_are_broadcast,
    single_calls_keep_dtype_and_place,
    groups_may_be_of_many_dtypes,
    sparse_gradients_are_gathered,
    what_has_no_order_is_refused,
]

if __name__ == "__main__":
    horovod_patches.init()
    for case in CASES:
        case()
        print(f"done: {case.__name__}", flush=True)
    print("all done", flush=True)
