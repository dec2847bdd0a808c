"""What a notebook reads of a job's checkpoints: by the names of the State, without Horovod, and without a claim."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.trainer.checkpoint import CheckpointNotFoundError, CorruptError, open_checkpoints, read_checkpoints
from hvd_elastic.trainer.checkpoint.errors import CheckpointUrlError
from hvd_elastic.trainer.checkpoint.reading import choose_version
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.saved_state import load
from tests.trainer.checkpoint.snapshots import same


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    (tmp_path / "run").mkdir()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))


def train(place: Path, *, steps: int = 3) -> dict[str, Any]:
    """Train for some steps, each of which is stored. Returns what the model and the optimizer hold in the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = State(model=model, optimizer=optimizer, best=0.0, checkpoint=f"file://{place}", checkpoint_keep=10)
    state.sync()
    for state.epoch in state.remaining_epochs(2):
        for batch in state.batches(torch.randn(40, 4), batch_size=8):
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            state.best += 1.0
            state.commit()
            assert state._commits.save_to_store_sync("test")
            if state.step_count == steps:
                state._commits.durable.close()
                return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    raise AssertionError(steps)


def test_a_script_finds_what_it_gave_to_its_state(tmp_path: Path) -> None:
    expected = train(tmp_path / "store", steps=7)
    saved = load(f"file://{tmp_path}/store")
    assert set(saved) == {"model", "optimizer", "best", "epoch"}
    assert len(saved) == 4
    assert same(dict(saved["model"]), dict(expected["model"]))
    assert same(saved["optimizer"], expected["optimizer"])
    assert (saved["best"], saved["epoch"], saved.step, saved.world_size, saved.reason) == (7.0, 1, 7, 1, "test")
    assert saved.objects == {"model", "optimizer"}
    assert saved.progress is not None
    assert saved.progress.data.passes["train"][0].position == 16
    assert repr(saved).startswith("<SavedState: step 7 (epoch 1, 16 of 40 samples), 20"), repr(saved)
    fresh = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    fresh.load_state_dict(saved["model"])
    with pytest.raises(KeyError, match="modle: the checkpoint has model, optimizer, epoch, best"):
        saved["modle"]


def test_each_version_is_found_by_its_step_and_by_its_name(tmp_path: Path) -> None:
    train(tmp_path / "store")
    url = f"file://{tmp_path}/store"
    by_step = {step: load(url, step) for step in (1, 2, 3)}
    assert [saved["best"] for saved in by_step.values()] == [1.0, 2.0, 3.0]
    assert load(url, "2")["best"] == 2.0
    assert load(url, by_step[1].name)["best"] == 1.0
    assert load(url).step == 3
    with pytest.raises(CheckpointNotFoundError, match=r"no checkpoint of step 9: the nearest are 1, 2, 3; the newest"):
        load(url, 9)
    with pytest.raises(CheckpointNotFoundError, match="write the number of a step, such as 3, or a name, such as man"):
        load(url, "best")


def test_it_says_that_there_is_nothing_and_makes_nothing(tmp_path: Path) -> None:
    for version in (None, 3):
        with pytest.raises(CheckpointNotFoundError, match=f"{tmp_path}/none: there is no checkpoint. The URL must be"):
            load(f"file://{tmp_path}/none", version)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(CheckpointUrlError, match=r"write s3://bucket/prefix, gs://bucket/prefix, .* or file:///path"):
        load(str(tmp_path))


def test_a_broken_version_is_named_and_passed_over_only_by_the_newest(tmp_path: Path) -> None:
    train(tmp_path / "store")
    url = f"file://{tmp_path}/store"
    with read_checkpoints(url) as reader:
        newest = reader.find(3)
    (tmp_path / "store" / newest.manifest.data).write_bytes(b"")
    assert load(url).step == 2
    with pytest.raises(CorruptError, match=f"{re.escape(newest.name)} is damaged.*steps 3, 2, 1; `hvd-elastic"):
        load(url, 3)


def test_what_no_state_has_written_is_read_too(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    writer = open_checkpoints(url, job="research/a", incarnation="")
    writer.save({"weights": torch.ones(2), "note": "by hand"}, step=4, world_size=1, reason="mine")
    assert writer.flush(60)
    writer.close()
    saved = load(url)
    assert saved.progress is None
    assert (saved["note"], saved.words) == ("by hand", "step 4")


NOTEBOOK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "horovod":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import hvd_elastic as elastic
saved = elastic.load(sys.argv[1])
print(saved.step, sorted(saved), tuple(saved["model"]["0.weight"].shape))
"""


@pytest.mark.core
@pytest.mark.process
def test_a_notebook_needs_no_horovod(tmp_path: Path) -> None:
    train(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, f"file://{tmp_path}/store"],
        capture_output=True, text=True, check=False, timeout=240, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 ['best', 'epoch', 'model', 'optimizer'] (3, 4)\n"


def test_of_several_checkpoints_of_a_step_the_newest_is_meant() -> None:
    listed = ["manifests/00000002-00000001-step-7.json", "manifests/00000001-00000003-step-7.json"]
    assert choose_version(listed, 7) == listed[0]
    assert choose_version(listed, listed[1]) == listed[1]
