"""`torch.compile` with batches of several sizes, as before and after a resize."""

from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from hvd_elastic.trainer.fit.compilation import compiled, mark_batch

EAGER = {"backend": "eager"}
"""What is counted is what Dynamo compiles: code for one graph and its guards, whatever compiles it further."""


def graphs(sizes: list[int], *, marked: bool) -> int:
    """How often a model is compiled that gets batches of these sizes."""
    torch._dynamo.reset()
    counters.clear()
    model = compiled(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), EAGER)
    for size in sizes:
        batch: dict[str, Any] = {"inputs": [torch.randn(size, 4)], "scale": torch.tensor(1.0)}
        if marked:
            mark_batch(batch)
        (model(batch["inputs"][0]) * batch["scale"]).sum().backward()
    return int(counters["stats"]["unique_graphs"])


@pytest.fixture(autouse=True)
def _forget() -> None:
    torch._dynamo.reset()


def test_a_resize_compiles_again_unless_the_batch_is_marked() -> None:
    sizes = [32, 16, 11, 10, 32]
    assert graphs(sizes, marked=False) == 2
    assert graphs(sizes, marked=True) == 1


def test_a_batch_of_one_sample_may_be_the_first() -> None:
    """torch treats the size 1 by itself. Not an error, as it would be with `mark_dynamic`."""
    assert graphs([1, 32, 16], marked=True) <= 3


def test_a_model_that_insists_on_a_size_is_compiled_for_each() -> None:
    class Insists(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (2 if x.shape[0] == 4 else 3)

    model = compiled(Insists(), EAGER)
    for size in (4, 6):
        batch = torch.ones(size, 2)
        mark_batch(batch)
        assert model(batch)[0, 0] == (2 if size == 4 else 3)


def test_it_is_left_out_unless_asked_for() -> None:
    model = torch.nn.Linear(1, 1)
    assert compiled(model, False) is model
    assert set(model.state_dict()) == {"weight", "bias"}
