"""The files of the best model, on a real file system and in each cloud's real server."""

import io
import json
import logging
from pathlib import Path

import pytest
import torch

from hvd_elastic.stores.location import Location
from hvd_elastic.trainer.fit.best_model import BestFiles
from hvd_elastic.trainer.fit.fit_progress import FitProgress


def progress(step: int) -> FitProgress:
    return FitProgress(step=step, best={"step": step, "epoch": 1, "metric": "loss", "value": 0.5})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "best").iterdir())


def test_torch_load_reads_the_file(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    files = BestFiles(f"file://{tmp_path}")
    files.write(progress(7), model, {"loss": 0.5})
    stored = torch.load(tmp_path / "best" / "step-7.pt")
    assert (stored["step"], stored["epoch"], stored["metrics"]) == (7, 1, {"loss": 0.5})
    assert all(torch.equal(stored["model"][name], value) for name, value in model.state_dict().items())
    best = files.best(progress(7))
    assert best is not None
    assert best.url == f"file://{tmp_path}/best/step-7.pt"


def test_the_files_are_the_same_in_every_store(url: str) -> None:
    """In `best/` below the prefix, and deleted there."""
    files, model = BestFiles(url), torch.nn.Linear(2, 1)
    for step in (3, 5):
        files.write(progress(step), model, {"loss": 0.5})
        files.delete_old(progress(step), commit=step, durable_commit=step, restorable=True)
    store = Location.parse(url).open()
    assert sorted(store.keys("best")) == ["best/best.json", "best/step-5.pt"]
    size = store.size_of("best/step-5.pt")
    assert size is not None
    data = bytearray(size)
    store.read_into("best/step-5.pt", 0, memoryview(data))
    assert torch.load(io.BytesIO(data))["step"] == 5
    assert files.url_of(5) == f"{url.partition('?')[0]}/best/step-5.pt"


def test_a_metric_that_is_no_number_is_null_in_the_index(tmp_path: Path) -> None:
    BestFiles(f"file://{tmp_path}").write(progress(7), torch.nn.Linear(2, 1), {"accuracy": float("nan")})
    assert json.loads((tmp_path / "best" / "best.json").read_text())["metrics"] == {"accuracy": None}


def test_the_same_file_is_written_again_after_a_writer_was_killed(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "step-7.pt.partial").write_bytes(b"half")
    BestFiles(f"file://{tmp_path}").write(progress(7), torch.nn.Linear(2, 1), {})
    assert names(tmp_path) == ["best.json", "step-7.pt"]


def test_a_file_that_cannot_be_written_is_kept_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, files = torch.nn.Linear(2, 1), BestFiles(f"file://{tmp_path}/out", sleep=lambda _: None)
    (tmp_path / "out").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        files.write(progress(7), model, {})
        files.delete_old(progress(7), commit=7, durable_commit=7, restorable=True)
    assert "is not written" in caplog.text
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    torch.nn.init.zeros_(model.weight)
    (tmp_path / "out").unlink()
    files.flush()
    stored = torch.load(tmp_path / "out" / "best" / "step-7.pt")["model"]
    assert torch.equal(stored["weight"], weights["weight"]), "the weights as they were evaluated"


def test_older_files_and_those_of_undone_steps_go_and_others_stay(tmp_path: Path) -> None:
    files, model = BestFiles(f"file://{tmp_path}"), torch.nn.Linear(2, 1)
    for step in (3, 5, 8):
        files.write(progress(step), model, {})
        files.delete_old(progress(step), commit=step, durable_commit=4, restorable=True)
    (tmp_path / "best" / "notes.pt").touch()
    assert names(tmp_path) == ["best.json", "notes.pt", "step-3.pt", "step-5.pt", "step-8.pt"]
    back = BestFiles(f"file://{tmp_path}")
    back.delete_old(FitProgress(step=4, best=progress(3).best), commit=4, durable_commit=4, restorable=True)
    assert names(tmp_path) == ["best.json", "notes.pt", "step-3.pt"]
