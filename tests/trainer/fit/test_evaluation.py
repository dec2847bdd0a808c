"""An evaluation on all workers together is that of one, whatever their number."""

from collections.abc import Mapping

import pytest
import torch

from hvd_elastic.trainer.fit.evaluation import evaluate
from testbed.thread_world import ThreadTrainingWorld, in_each_rank


def measure(model: torch.nn.Module, batch: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Means over a batch; a name that only some batches have counts as zero in the others."""
    found = {"value": batch.double().mean()}
    return found | ({"ten": torch.tensor(1.0)} if 10 in batch else {})


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 3, 11])
def test_every_sample_counts_once_on_every_rank(length: int, size: int) -> None:
    def work(world: ThreadTrainingWorld) -> tuple[dict[str, float], list[str]]:
        model = torch.nn.Linear(1, 1)
        means = evaluate(model, measure, torch.arange(length), batch_size=1, to_device=lambda batch: batch, world=world)
        assert model.training
        return means, world.said

    means = {"value": (length - 1) / 2} if length else {}
    if length > 10:
        means["ten"] = 1 / length
    said = ["allgather_object hvd_elastic.evaluation"] if size > 1 else []
    for found, operations in in_each_rank(size, work):
        assert found == pytest.approx(means)
        assert operations == said
