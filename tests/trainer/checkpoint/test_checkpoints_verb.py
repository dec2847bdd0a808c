"""`hvd-elastic checkpoints`, as a person types it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import nn

from hvd_elastic.cli import cli
from hvd_elastic.mpijob.contract import ENV_RUN_DIR, HvdElasticError
from hvd_elastic.trainer.checkpoint import CheckpointNotFoundError, PrefixOwnedError, open_checkpoints
from hvd_elastic.trainer.checkpoint.errors import CheckpointUrlError, ExchangeError
from hvd_elastic.trainer.checkpoint.exchange.file_formats import read_file
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.saved_state import load
from testbed.terminal import HOSTILE, steering
from tests.hvd_elastic.cli.entry_point import tool
from tests.trainer.checkpoint.snapshots import same

FORMATS = ["safetensors", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("torch", "dcp"))]


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    (tmp_path / "run").mkdir()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))
    monkeypatch.setenv("HVD_ELASTIC_NAMESPACE", "research")
    monkeypatch.setenv("HVD_ELASTIC_JOB", "fashion")


def verb(*words: object) -> Result:
    return CliRunner().invoke(cli, ("checkpoints", *map(str, words)))


def done(*words: object) -> str:
    result = verb(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def failure(*words: object) -> HvdElasticError:
    error = verb(*words).exception
    assert isinstance(error, HvdElasticError), error
    return error


def new_state(url: str, **values: Any) -> State:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return State(model=model, optimizer=optimizer, checkpoint=url, **{"best": 0.0, **values})


def train(url: str, *, steps: int = 3, **values: Any) -> State:
    """Train for so many steps more, each of which is stored."""
    state = new_state(url, **values)
    state.sync()
    until = state.step_count + steps
    for state.epoch in state.remaining_epochs(10):
        for batch in state.batches(torch.randn(40, 4, generator=torch.Generator().manual_seed(1)), batch_size=8):
            state.model(batch).square().sum().backward()
            state.optimizer.step()
            state.optimizer.zero_grad()
            state.best += 1.0
            state.commit()
            assert state._commits.save_to_store_sync("test")
            if state.step_count == until:
                state._commits.durable.close()
                return state
    raise AssertionError(until)


def test_list_marks_the_latest_and_needs_no_name(url: str) -> None:
    train(url)
    listed = json.loads(done("list", url, "-o", "json"))
    assert [(row["step"], row["status"]) for row in listed] == [(3, "latest"), (2, None), (1, None)]
    assert done(url, "-o", "name").split() == [row["manifest"] for row in listed]
    assert done(url).splitlines()[1].endswith("latest")


def test_verify_tells_what_is_damaged_with_its_exit_code(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    train(url)
    assert [row["status"] for row in json.loads(done("verify", url, "-o", "json"))] == ["whole"] * 3
    damaged = min((tmp_path / "store" / "data").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    result = verify = verb("verify", url, "-o", "json")
    assert result.exit_code == 1
    statuses = [row["status"] for row in json.loads(verify.stdout)]
    assert statuses[:2] == ["whole", "whole"]
    assert "does not match its SHA-256" in statuses[2]
    assert done("verify", url, 3).count("whole") == 1
    assert verb("verify", url, 1).exit_code == 1


def test_show_says_what_a_checkpoint_holds(url: str) -> None:
    train(url, note="mine")
    shown = json.loads(done("show", url, "-o", "json"))
    assert (shown["step"], shown["progress"], shown["reason"]) == (3, "step 3 (epoch 0, 24 of 40 samples)", "test")
    assert shown["writer"]["torch"] == str(torch.__version__)
    rows = {row.pop("name"): row for row in shown["content"]}
    assert rows["model.0.weight"] == {"type": "float32", "shape": [3, 4], "bytes": 48, "value": None}
    assert rows["model.1.num_batches_tracked"] == {"type": "int64", "shape": [], "bytes": 8, "value": None}
    assert rows["optimizer.state.0.momentum_buffer"]["shape"] == [3, 4]
    assert rows["note"] == {"type": "str", "shape": None, "bytes": None, "value": "'mine'"}
    assert rows["epoch"]["value"] == "0"
    table = done("show", url, 2)
    assert table.startswith("step 2 (epoch 0, 16 of 40 samples), stored 20"), table
    assert "written by hvd_elastic" in table.splitlines()[1]
    assert ["model.1.num_batches_tracked", "int64", "scalar", "8", "-"] in [line.split() for line in table.splitlines()]
    assert "model.0.weight" in done("show", url, "-o", "name").split()


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    assert done("list", url, "-o", "json") == "[]\n"
    for words in (("show", url), ("export", url, "--to", tmp_path / "a.pt")):
        error = failure(*words)
        assert isinstance(error, CheckpointNotFoundError)
        assert error.exit_code == 2
    train(url)
    assert "the nearest are 1, 2, 3" in str(failure("show", url, 9))
    assert "has no modle: it has model, optimizer" in str(
        failure("export", url, "--to", tmp_path / "a.pt", "--only", "modle")
    )
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_whole_export_goes_on_where_it_was(file_format: str, url: str, tmp_path: Path) -> None:
    """The job in another place takes the very steps that the first one takes."""
    file = tmp_path / "whole"
    train(url)
    done("export", url, "--to", file, "--format", file_format)
    other = f"file://{tmp_path}/moved/research/fashion"
    done("import", file, "--to", other)
    moved, stayed = load(other), load(url)
    assert (moved.step, moved.words, moved.reason) == (3, stayed.words, "import")
    assert moved.progress == stayed.progress
    first, second = train(url, steps=4), train(other, steps=4)
    assert same(dict(second.model.state_dict()), dict(first.model.state_dict()))
    assert same(second.optimizer.state_dict(), first.optimizer.state_dict())
    assert (second.best, second.epoch, second.step_count) == (first.best, first.epoch, 7)


@pytest.mark.parametrize("file_format", FORMATS)
def test_weights_alone_start_a_job(file_format: str, url: str, tmp_path: Path) -> None:
    trained = train(url)
    file = tmp_path / "weights"
    done("export", url, 3, "--to", file, "--format", file_format, "--only", "model")
    assert same(dict(read_file(file)), dict(trained.model.state_dict()))
    other = f"file://{tmp_path}/warm/research/fashion"
    done("import", file, "--to", other)
    begun = new_state(other)
    begun.sync()
    begun._commits.durable.close()
    assert same(dict(begun.model.state_dict()), dict(trained.model.state_dict()))
    assert (begun.step_count, begun.epoch, begun.best, begun.optimizer.state_dict()["state"]) == (0, 0, 0.0, {})


def test_a_job_beside_an_import_goes_on_and_is_not_overwritten(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/research/fashion"
    writer = open_checkpoints(url, job="research/fashion", incarnation="one")
    torch.save({"weight": torch.ones(1)}, tmp_path / "weights.pt")
    error = failure("import", tmp_path / "weights.pt", "--to", url)
    assert isinstance(error, PrefixOwnedError)
    assert "belongs to job 'research/fashion'" in str(error)
    writer.save({"weight": torch.ones(1)}, step=1, world_size=1, reason="test")
    assert writer.flush(60), "the writer was not fenced out"
    writer.close()


def test_an_import_into_a_bucket(s3_url: str, tmp_path: Path) -> None:
    torch.save({"model": {"weight": torch.ones(3)}, "epoch": 2}, tmp_path / "theirs.pt")
    done("import", tmp_path / "theirs.pt", "--to", s3_url, "--only", "model")
    saved = load(s3_url)
    assert (list(saved), saved.step, saved["model"]["weight"].tolist()) == (["model"], 0, [1, 1, 1])
    assert json.loads(done("list", s3_url, "-o", "json"))[0]["reason"] == "import"


@pytest.mark.parametrize("name", ["weights.safetensors", "weights"])
def test_an_import_out_of_a_bucket(name: str, s3_url: str, s3_client: Any, tmp_path: Path) -> None:
    """A file, and a folder of torch.distributed.checkpoint, are downloaded."""
    url = f"file://{tmp_path}/research/fashion"
    train(url)
    done("export", url, "--to", tmp_path / name, "--only", "model", *([] if "." in name else ["--format", "dcp"]))
    bucket = s3_url.split("/")[2]
    local = tmp_path / name
    for path in [local] if local.is_file() else local.iterdir():
        s3_client.upload_file(str(path), bucket, f"models/{path.relative_to(tmp_path)}")
    options = s3_url.partition("?")[2]
    done("import", f"s3://{bucket}/models/{name}?{options}", "--to", f"file://{tmp_path}/research/other")
    assert same(dict(load(f"file://{tmp_path}/research/other")["model"]), dict(load(url)["model"]))
    error = failure("import", f"s3://{bucket}/models/none?{options}", "--to", f"file://{tmp_path}/research/third")
    assert "there is neither a file nor a folder" in str(error)


def test_what_no_checkpoint_can_hold_is_left_out_only_if_asked_for(tmp_path: Path) -> None:
    file, url = tmp_path / "theirs.pt", f"file://{tmp_path}/research/a"
    torch.save({"model": {"weight": torch.ones(3), "rare": torch.ones(3).to_sparse()}, "epoch": 2}, file)
    error = failure("import", file, "--to", url)
    assert "to leave it out, add --no-strict:\nmodel.rare: tensor of torch.sparse_coo" in str(error)
    assert not (tmp_path / "research").exists()
    told = verb("import", file, "--to", url, "--no-strict")
    assert told.stderr.splitlines() == [
        "left out: model.rare: tensor of torch.sparse_coo",
        f"{url}: model, epoch at step 0, for job research/a",
    ]
    assert list(load(url)["model"]) == ["weight"]


def test_an_import_says_what_it_cannot_take(tmp_path: Path) -> None:
    file = tmp_path / "theirs.pt"
    torch.save({"model": {"weight": torch.ones(3)}}, file)
    assert isinstance(failure("import", file, "--to", f"file://{tmp_path.anchor}a"), CheckpointUrlError)
    unknown = failure("import", file, "--to", f"file://{tmp_path}/research/a", "--only", "ema")
    assert isinstance(unknown, ExchangeError)
    assert "has no ema: it has model" in str(unknown)
    assert not (tmp_path / "research").exists()


def test_a_strangers_checkpoint_does_not_steer_the_terminal(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = open_checkpoints(url, job="research/fashion", incarnation="1")
    content = {"objects": {"model": {HOSTILE: torch.zeros(2)}}, "values": {HOSTILE: HOSTILE}}
    checkpoints.save({**content, "progress": {}, "randomness": {}}, step=1, world_size=1, reason=HOSTILE)
    assert checkpoints.flush()
    checkpoints.close()
    hvd = tool(capsys, monkeypatch, "checkpoints")
    told = [hvd("show", url, "-o", output) for output in ("table", "json", "yaml", "name")]
    told += [hvd("list", url), hvd("verify", url), hvd("export", url, "--to", str(tmp_path / "a.pt"), "--only", "none")]
    for ran in told:
        assert not steering(ran.out + ran.err), ran
        assert not any(line.startswith("FORGED") for line in (ran.out + ran.err).split("\n")), ran
    assert all("owned" in ran.out for ran in told[:4])
    assert json.loads(told[1].out)["reason"] == HOSTILE
