"""What `hvd.DistributedOptimizer` refuses, in a world that may grow, and what it leaves alone."""

from types import SimpleNamespace
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from horovod.torch import DistributedOptimizer, mpi_ops  # as a script that imports the name before `elastic.init()`
from horovod.torch import optimizer as horovods_optimizers

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.collectives.replaced_functions import check_wrapped_optimizers
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.mistakes import refused_optimizers, script_checks


@pytest.fixture(autouse=True)
def _elastic_world(monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")


def wrapped(optimizer: torch.optim.Optimizer, model: torch.nn.Module, **options: Any) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = DistributedOptimizer(optimizer, model.named_parameters(), **options)
    return made


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": model.parameters(), "lr": 0.1}])


def test_a_sound_one_is_wrapped() -> None:
    model = torch.nn.Linear(2, 1)
    assert type(wrapped(sgd(model), model)).__name__ == "SGD"
    assert type(wrapped(sgd(model), model, op=hvd.Sum)).__name__ == "SGD"


@pytest.mark.parametrize(
    ("words", "optimizer", "options"),
    [
        (refused_optimizers.LBFGS, lambda model: torch.optim.LBFGS(model.parameters()), {}),
        (refused_optimizers.ADASUM, sgd, {"op": hvd.Adasum}),
    ],
)
def test_what_cannot_be_distributed(
    words: str, optimizer: Any, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(SystemExit) as ended:
        wrapped(optimizer(model), model, **options)
    assert ended.value.code == Exit.SCRIPT_MISTAKE
    assert words in capsys.readouterr().err


def test_adasum_has_a_class_of_its_own_in_a_larger_world(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(horovods_optimizers, "size", lambda: 2)
    model = torch.nn.Linear(2, 1)
    with pytest.raises(SystemExit):
        wrapped(sgd(model), model, op=hvd.Adasum)
    assert refused_optimizers.ADASUM in capsys.readouterr().err


def test_over_mpi_there_is_adasum(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    monkeypatch.setattr(hvd, "mpi_enabled", lambda: True)
    stock = SimpleNamespace(__init__=lambda self, params, op: None)
    monkeypatch.setattr(horovods_optimizers, "_DistributedOptimizer", stock)
    check_wrapped_optimizers(lambda _, __, lacks_adasum: found.append(lacks_adasum))
    vars(stock)["__init__"](None, [], mpi_ops.Adasum)
    assert found == [False]


def test_alone_horovod_takes_no_part_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_ELASTIC")
    model = torch.nn.Linear(2, 1)
    assert wrapped(torch.optim.LBFGS(model.parameters()), model)


def test_lbfgs_that_is_reduced_by_hand() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    assert script_checks.find(SimpleNamespace(model=model, optimizer=optimizer)) == []


def test_weights_that_wait_for_the_first_batch(capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d(affine=False))
    optimizer = sgd(model)
    with pytest.raises(SystemExit):
        wrapped(optimizer, model)
    assert refused_optimizers.LAZY in capsys.readouterr().err
    assert script_checks.find(SimpleNamespace(model=model, optimizer=optimizer)) == [refused_optimizers.LAZY]

    model(torch.ones(2, 4))
    assert script_checks.find(SimpleNamespace(model=model, optimizer=optimizer)) == []
    assert wrapped(optimizer, model)


def test_statistics_that_wait_for_the_first_batch() -> None:
    model = torch.nn.LazyBatchNorm1d(affine=False)
    assert script_checks.find(SimpleNamespace(model=model)) == [refused_optimizers.LAZY]
