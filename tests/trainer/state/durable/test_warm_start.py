"""A job that begins with the weights of another, from whatever file they are in, and only while it has none itself."""

import logging
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT_WARM_START,
    ENV_CHECKPOINT_WARM_START_STRICT,
    ENV_RUN_DIR,
    Exit,
)
from hvd_elastic.trainer.checkpoint import IncompatibleError
from hvd_elastic.trainer.checkpoint.errors import CheckpointNotFoundError
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.durable.warm_start import WarmStart, choose, fit
from hvd_elastic.trainer.state.elastic_state import State
from tests.trainer.checkpoint.snapshots import same


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    (tmp_path / "run").mkdir()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))


class Tied(nn.Module):
    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 3)
        self.norm = nn.BatchNorm1d(3)
        self.output = nn.Linear(3, size, bias=False)
        self.output.weight = self.embedding.weight


def weights(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def begin(tmp_path: Path, **values: Any) -> State:
    """Start a job, and end it after one commit, which is durable."""
    state = State(checkpoint=f"file://{tmp_path}/store", **values)
    try:
        state.sync()
        state.commit()
        assert state._commits.save_to_store_sync("test")
    finally:
        state._commits.durable.close()
    return state


def test_it_is_the_very_first_start_that_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = Tied()
    safetensors.torch.save_model(trained, str(tmp_path / "theirs.safetensors"))
    monkeypatch.setenv(ENV_CHECKPOINT_WARM_START, f"file://{tmp_path}/theirs.safetensors")
    first = begin(tmp_path, model=Tied(), best=1.0)
    assert same(weights(first.model), weights(trained))
    assert first.best == 1.0
    said = capsys.readouterr().err
    assert said.endswith(f"/store, beginning anew, with model of file://{tmp_path}/theirs.safetensors\n"), said
    with torch.no_grad():
        first.model.output.weight.fill_(7.0)
    first.commit()
    assert first.step_count == 2
    (tmp_path / "theirs.safetensors").unlink()
    again = begin(tmp_path, model=Tied(), best=1.0)
    assert same(weights(again.model), weights(trained)), "that of its own checkpoint, whose step is 1"
    assert "restored step 1" in capsys.readouterr().err


def files(tmp_path: Path, trained: nn.Module) -> dict[str, str]:
    """Every kind of place that has the weights of `trained`, by its name."""
    state = trained.state_dict()
    torch.save(state, tmp_path / "bare.pt")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "lightning.ckpt")
    torch.save({f"module.{name}": tensor for name, tensor in state.items()}, tmp_path / "parallel.pt")
    dcp_save({"model": state}, checkpoint_id=tmp_path / "folder")
    safetensors.torch.save_model(trained, str(tmp_path / "a.safetensors"))
    begin(tmp_path / "other", model=trained)
    names = {name: name for name in ("bare.pt", "lightning.ckpt", "parallel.pt", "folder", "a.safetensors")}
    return {**names, "another job's": "other/store"}


@pytest.mark.parametrize(
    "name", ["bare.pt", "lightning.ckpt", "parallel.pt", "folder", "a.safetensors", "another job's"]
)
def test_weights_come_from_whatever_has_them(name: str, tmp_path: Path) -> None:
    trained, model = Tied(), Tied()
    place = files(tmp_path, trained)[name]
    warm_start = WarmStart(place=f"file://{tmp_path}/{place}")
    assert warm_start.load({"net": model}, lambda _, fitting: model.load_state_dict(fitting, strict=False)) == ("net",)
    assert same(weights(model), weights(trained))


def test_what_does_not_fit_ends_the_job_or_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = {**Tied(size=6).state_dict(), "extra": torch.ones(1)}
    del theirs["norm.bias"]
    torch.save(theirs, tmp_path / "theirs.pt")
    monkeypatch.setenv(ENV_CHECKPOINT_WARM_START, f"file://{tmp_path}/theirs.pt")
    shapes = "(6, 3), the module has (5, 3)"
    lines = [
        "model: missing: norm.bias",
        "model: unexpected: extra",
        f"model: of another shape: embedding.weight {shapes}, output.weight {shapes}",
    ]
    model = Tied()
    before = weights(model)
    with pytest.raises(IncompatibleError) as caught:
        begin(tmp_path, model=model)
    assert str(caught.value).splitlines()[1:] == lines
    assert caught.value.exit_code == Exit.SCRIPT_MISTAKE
    assert same(weights(model), before), "nothing was loaded"
    monkeypatch.setenv(ENV_CHECKPOINT_WARM_START_STRICT, "0")
    theirs["norm.weight"] = torch.full((3,), 4.0)
    torch.save(theirs, tmp_path / "theirs.pt")
    with caplog.at_level(logging.WARNING):
        begun = begin(tmp_path / "b", model=model)
    assert begun.model.norm.weight.tolist() == [4, 4, 4]
    assert same(begun.model.embedding.weight.detach(), before["embedding.weight"])
    assert "\n".join(lines) in caplog.text


def test_a_place_without_weights_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="there is no checkpoint"):
        WarmStart(place=f"file://{tmp_path}/none").load({"model": Tied()}, lambda *_: None)
    with pytest.raises(IncompatibleError, match="a module of the State, which has a, b; there are c"):
        choose({"c": {}}, {"a": Tied(), "b": Tied()})


def test_a_name_that_is_tied_to_another_is_not_missing() -> None:
    model = Tied()
    present = {name: tensor for name, tensor in model.state_dict().items() if "norm" not in name}
    found = fit({"embedding.weight": torch.ones(5, 3)}, present)
    assert (found.missing, list(found.fitting)) == ((), ["embedding.weight"])


def test_without_the_jobs_word_there_is_none() -> None:
    assert WarmStart.of_job({}) is None
    assert WarmStart.of_job({ENV_CHECKPOINT_WARM_START: "file:///a"}) == WarmStart(place="file:///a", strict=True)
