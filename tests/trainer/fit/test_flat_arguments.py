"""Arguments that are fields of groups now: they work flat, with a warning, and not beside their group."""

import warnings
from typing import Any

import pytest
import torch

from hvd_elastic.trainer.fit.best_model import KeepBest
from hvd_elastic.trainer.fit.early_stop import EarlyStop
from hvd_elastic.trainer.fit.flat_arguments import FLAT, take_options
from hvd_elastic.trainer.fit.trainer import Trainer
from hvd_elastic.trainer.fit.trainer_checks import TrainerError, check_measured
from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation, Evaluation, Reporting

NONE: dict[str, Any] = dict.fromkeys(("evaluation", "computation", "checkpointing", "reporting"))
DATA = [1, 2, 3]


def measure(_model: torch.nn.Module, _batch: Any) -> dict[str, torch.Tensor]:
    return {}


def tell(_moment: object) -> None:
    pass


GROUPS: dict[str, Any] = {
    "evaluation": Evaluation(
        data=DATA, every=5, measure=measure, early_stop=EarlyStop(), keep_best=KeepBest(metric="error")
    ),
    "computation": Computation(
        precision="bf16", clip_norm=0.5, torch_compile={"dynamic": True}, seeding=False, device="cpu"
    ),
    "checkpointing": Checkpointing(commit_every=3, url="file:///tmp", overlap=True),
    "reporting": Reporting(callbacks=(tell,), log_every=7, tensorboard="board", progress=False),
}


def flat_of(groups: dict[str, Any]) -> dict[str, Any]:
    pairs = {name: path.split(".") for name, path in FLAT.items()}
    return {name: getattr(groups[group], field) for name, (group, field) in pairs.items()}


def train(**given: Any) -> None:
    """The Trainer of a script. `epochs` cannot be used, so nothing begins."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Trainer(model, optimizer, loss=lambda model, batch: model(batch).mean(), data=DATA, epochs=0, **given)


def test_every_field_has_its_flat_name() -> None:
    fields = {f"{name}.{field}" for name, group in GROUPS.items() for field in group.__dataclass_fields__}
    assert set(FLAT.values()) == fields - {"evaluation.data"}


def test_flat_arguments_become_the_groups_and_the_others_stay() -> None:
    keywords = {**flat_of(GROUPS), "num_workers": 2}
    with pytest.warns(DeprecationWarning, match=r"^Trainer: .* flat it goes with the next release$") as caught:
        options = take_options({**NONE, "evaluation": DATA}, keywords)
    assert {name: getattr(options, name) for name in GROUPS} == GROUPS
    assert not options.problems
    assert keywords == {"num_workers": 2}
    said = str(caught[0].message)
    assert "evaluate_every is evaluation=Evaluation(data=..., every=...)" in said
    assert "checkpoint is checkpointing=Checkpointing(url=...)" in said


def test_groups_and_a_plain_data_set_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = take_options(GROUPS, {"seed": 1})
        plain = take_options({**NONE, "evaluation": DATA}, {})
        nothing = take_options(NONE, {})
    assert {name: getattr(options, name) for name in GROUPS} == GROUPS
    assert plain.evaluation == Evaluation(data=DATA)
    assert nothing.evaluation == Evaluation(data=None)
    assert (nothing.computation, nothing.checkpointing) == (Computation(), Checkpointing())
    assert nothing.reporting == Reporting()


def test_the_warning_points_to_the_script() -> None:
    with (
        pytest.warns(DeprecationWarning, match=r"log_every is reporting=Reporting\(log_every=\.\.\.\)") as caught,
        pytest.raises(TrainerError),
    ):
        train(log_every=5)
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_flat_and_grouped_for_the_same_is_one_error() -> None:
    evaluation = GROUPS["evaluation"]
    with pytest.raises(TrainerError) as caught:
        train(log_every=5, progress=False, reporting=Reporting(), early_stop=EarlyStop(), evaluation=evaluation)
    said = str(caught.value)
    assert said.startswith("Trainer: early_stop: `evaluation` is given too: put it in there, as evaluation=Evaluation(")
    assert "; log_every: `reporting` is given too: put it in there, as reporting=Reporting(log_every=...)" in said
    assert "; progress: `reporting` is given too" in said


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(TrainerError, match="computation: 'bf16' is not a Computation"):
        train(computation="bf16")


@pytest.mark.filterwarnings("ignore:Trainer:DeprecationWarning")
def test_problems_have_the_names_that_the_script_wrote() -> None:
    with pytest.raises(TrainerError) as caught:
        train(
            log_every=0,
            clip_norm=0.0,
            precision="fp8",
            evaluate_every=5,
            early_stop=EarlyStop(patience=0),
            checkpointing=Checkpointing(commit_every=0),
        )
    problems = str(caught.value).removeprefix("Trainer: ").split("; ")
    assert {problem.partition(": ")[0] for problem in problems} == {
        "epochs",
        "checkpointing.commit_every",
        "log_every",
        "clip_norm",
        "precision",
        "evaluate_every",
        "early_stop",
        "early_stop.patience",
    }
    assert "evaluate_every: there is nothing to evaluate: give `evaluation` too" in problems


@pytest.mark.filterwarnings("ignore:Trainer:DeprecationWarning")
def test_a_judge_has_the_name_that_the_script_wrote() -> None:
    flat = take_options({**NONE, "evaluation": DATA}, {"early_stop": EarlyStop(metric="error")})
    with pytest.raises(TrainerError, match=r"Trainer: early_stop\.metric: 'error' is not measured"):
        check_measured({"loss": 1.0}, flat.judges())
    with pytest.raises(TrainerError, match=r"Trainer: evaluation\.keep_best\.metric: 'error' is not measured"):
        check_measured({"loss": 1.0}, take_options(GROUPS, {}).judges())
