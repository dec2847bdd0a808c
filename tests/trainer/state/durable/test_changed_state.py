"""A script whose State has other names than the checkpoint it resumes from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT_ALLOW_MISSING, ENV_CHECKPOINT_STEPS, ENV_RUN_DIR, Exit
from hvd_elastic.trainer.checkpoint import IncompatibleError
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.durable.changed_state import check_names
from hvd_elastic.trainer.state.elastic_state import State


def tree(objects: str, **values: object) -> dict[str, Any]:
    return {"objects": {name: {} for name in objects}, "values": values, "progress": {}}


def test_equal_names_match_in_whatever_order() -> None:
    assert not check_names(tree("ab", epoch=0, best=1), tree("ba", best=2, epoch=1), allow_missing=())
    assert not check_names(tree("a", b=None), tree("ac"[:1], c=None), allow_missing=()), "None has nothing to lose"
    assert not check_names(tree("a", b=1), tree("ab"), allow_missing=()), "what a name holds is the State's matter"


@pytest.mark.parametrize(
    ("stored", "present"),
    [
        (tree("a"), tree("b")),
        (tree("ab"), tree("a")),
        (tree("a"), tree("ab")),
        (tree("", a=0, b=1), tree("", a=0)),
        (tree("", a=0), tree("", a=0, b=1)),
    ],
)
def test_a_name_that_one_side_lacks_is_an_error_unless_it_is_allowed(
    stored: dict[str, Any], present: dict[str, Any]
) -> None:
    with pytest.raises(IncompatibleError, match="b"):
        check_names(stored, present, allow_missing=("c",))
    assert check_names(stored, present, allow_missing=("a", "b", "c"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))
    monkeypatch.setenv(ENV_CHECKPOINT_STEPS, "1")
    (tmp_path / "run").mkdir()
    return tmp_path / "checkpoints"


def train(folder: Path, commits: int, **content: Any) -> State:
    """Resume from the folder, and make some commits durable."""
    state = State(checkpoint=f"file://{folder}", checkpoint_keep=1, **content)
    try:
        state.sync()
        for _ in range(commits):
            state.commit()
            state._commits.save_to_store_sync("test")
            assert state._commits.is_durable
            assert state._commits.durable._checkpoints is not None
            assert state._commits.durable._checkpoints.wait_idle(30)
    finally:
        state._commits.durable.close()
    return state


def trained(value: float) -> nn.Module:
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, value)
    return model


def stored(folder: Path) -> list[int]:
    return sorted(int(path.stem.rsplit("-", 1)[1]) for path in (folder / "manifests").iterdir())


def weight(module: nn.Module) -> float:
    assert isinstance(module.weight, torch.Tensor)
    return float(module.weight[0, 0])


def test_a_renamed_model_is_an_error_that_costs_nothing(folder: Path) -> None:
    train(folder, 2, model=trained(7.0))
    for _ in range(2):
        with pytest.raises(IncompatibleError) as caught:
            train(folder, 2, net=trained(1.0))
        assert caught.value.exit_code == Exit.SCRIPT_MISTAKE
        for text in ("checkpoint has: model.", "State has: net.", "allow_missing=('model', 'net')", "=model,net"):
            assert text in str(caught.value)
    assert weight(train(folder, 0, model=trained(1.0)).model) == 7.0
    assert stored(folder) == [2]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_what_was_trained_before_a_change_is_never_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    train(folder, 2, model=trained(7.0))
    options: dict[str, Any] = {"allow_missing": ("model", "net")} if by == "argument" else {}
    if by == "environment":
        monkeypatch.setenv(ENV_CHECKPOINT_ALLOW_MISSING, "model, net")
    state = train(folder, 3, net=trained(1.0), **options)
    assert weight(state.net) == 1.0
    assert state.step_count == 5
    assert stored(folder) == [2, 5], "the new state's are kept as usual, beside those of the former"
    monkeypatch.delenv(ENV_CHECKPOINT_ALLOW_MISSING, raising=False)
    assert weight(train(folder, 2, net=trained(3.0)).net) == 1.0
    assert stored(folder) == [2, 7], "also in a later run"
