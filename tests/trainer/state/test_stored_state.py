"""What a durable checkpoint of a State holds."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.trainer.checkpoint import read_checkpoints
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.output = nn.Linear(64, 1000, bias=False)
        self.output.weight = self.embedding.weight


def test_tied_weights_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    model, centre = Tied(), torch.nn.Parameter(torch.ones(3))
    state = State(model=model, centre=centre, checkpoint=f"file://{tmp_path}/checkpoints")
    state.sync()
    state.commit()
    assert state._commits.save_to_store_sync("test")
    state._commits.durable.close()
    with read_checkpoints(f"file://{tmp_path}/checkpoints") as reader:
        found = reader.latest()
    assert found is not None
    assert found.size_bytes < 1.2 * model.embedding.weight.nbytes
    tree: Any = found.load()
    values = tree["objects"]["model"]
    centre = tree["values"]["centre"]
    assert type(centre) is torch.nn.Parameter
    assert centre.requires_grad
    assert values["embedding.weight"] is values["output.weight"]
    assert torch.equal(values["embedding.weight"], model.embedding.weight)
