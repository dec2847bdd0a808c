"""Mixed precision and `torch.compile` with commits: what goes back to a commit goes on as if nothing had been."""

from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import nn

from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.fit.compilation import compiled, mark_batch
from hvd_elastic.trainer.fit.precision import MixedPrecision, Precision
from hvd_elastic.trainer.state.elastic_state import State
from tests.gpu.machine import devices

COMPILERS: dict[str, dict[str, Any]] = {"cpu": {"backend": "eager"}, "cuda": {"backend": "inductor"}}
"""Of the CPU's form what Dynamo makes is enough: it is compiled in an instant. A GPU's goes through Triton."""


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    torch._dynamo.reset()


class Job:
    """A small model on the device, as a Trainer puts it together."""

    def __init__(self, device: str, precision: Precision, *, compile_it: bool, overlap: bool) -> None:
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8)).to(self.device)
        self.forward = compiled(self.model, COMPILERS[device] if compile_it else False)
        self.mixed = MixedPrecision(precision, device=self.device, clip_norm=1.0)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())
        scaler: dict[str, Any] = {"scaler": self.mixed.scaler} if self.mixed.scaler else {}
        self.state = State(model=self.model, optimizer=self.optimizer, overlap=overlap, **scaler)
        self.state.sync()

    def step(self, batch: torch.Tensor) -> float:
        batch = batch.to(self.device)
        mark_batch(batch)
        with self.mixed.autocast():
            loss = self.forward(batch).float().square().mean()
        self.mixed.backward(loss)
        self.mixed.step(self.model, self.optimizer)
        return float(loss)

    def weights(self) -> list[torch.Tensor]:
        return [parameter.detach().cpu().clone() for parameter in self.model.parameters()]

    def scale(self) -> float | None:
        return self.mixed.scaler.get_scale() if self.mixed.scaler else None


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
@pytest.mark.parametrize(
    "compile_it", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["eager", "compiled"]
)
@pytest.mark.parametrize("precision", list(Precision))
def test_training_goes_on_exactly_from_a_commit(
    precision: Precision, compile_it: bool, overlap: bool, device: str
) -> None:
    """Training that goes back to a commit ends with the weights of one that did not."""
    batches = [torch.randn(16, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(8)]

    undisturbed = Job(device, precision, compile_it=compile_it, overlap=overlap)
    losses = [undisturbed.step(batch) for batch in batches]
    assert losses[-1] < losses[0], "it learns nothing"

    disturbed = Job(device, precision, compile_it=compile_it, overlap=overlap)
    for batch in batches[:5]:
        disturbed.step(batch)
        disturbed.state.commit()
    for batch in batches[:3]:  # steps that are lost
        disturbed.step(batch)
    disturbed.state.restore()
    assert [disturbed.step(batch) for batch in batches[5:]] == losses[5:]

    assert all(map(torch.equal, disturbed.weights(), undisturbed.weights()))
    assert disturbed.scale() == undisturbed.scale()
    assert {parameter.device.type for parameter in disturbed.model.parameters()} == {device}
