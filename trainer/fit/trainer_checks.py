"""What is wrong with the arguments of a `Trainer`, found before anything starts."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import torch

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.fit.best_model import KeepBest
from hvd_elastic.trainer.fit.early_stop import EarlyStop
from hvd_elastic.trainer.fit.precision import Precision
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer


class TrainerError(HvdElasticError):
    """Arguments of the Trainer cannot be used; the message names every problem."""

    exit_code = Exit.SCRIPT_MISTAKE


class SchedulePer(StrEnum):
    """When a `Trainer` steps its learning-rate scheduler."""

    EPOCH = "epoch"
    """After the last step of an epoch, and its evaluation."""
    STEP = "step"
    """After each step of the optimizer."""


def check_arguments(
    *,
    counts: Mapping[str, int | None],
    clip_norm: float | None,
    precision: str,
    schedule_per: str,
    optimizer: torch.optim.Optimizer,
    evaluation: Any,
    judges: Mapping[str, EarlyStop | KeepBest | None],
) -> None:
    """Raise a TrainerError that names every problem.

    Args:
        counts: numbers that must be at least 1 where they are given, by name.
        clip_norm: see `Trainer`.
        precision: see `Trainer`.
        schedule_per: see `Trainer`.
        optimizer: see `Trainer`.
        evaluation: see `Trainer`.
        judges: what judges evaluations, by name.
    """
    problems = [f"{name}: {value} is below 1" for name, value in counts.items() if value is not None and value < 1]
    if clip_norm is not None and not clip_norm > 0:
        problems.append(f"clip_norm: {clip_norm} is not above 0")
    if precision not in tuple(Precision):
        problems.append(f"precision: {precision!r} is not one of {', '.join(Precision)}")
    if schedule_per not in tuple(SchedulePer):
        problems.append(f"schedule_per: {schedule_per!r} is not one of {', '.join(SchedulePer)}")
    if hasattr(optimizer, "skip_synchronize") and not isinstance(optimizer, ShardedOptimizer):
        problems.append("optimizer: it is already wrapped by hvd.DistributedOptimizer: give the plain one")
    needs = {**judges, "evaluate_every": counts.get("evaluate_every")}
    if evaluation is None:
        problems += [f"{name}: there is nothing to evaluate: give `evaluation` too" for name, it in needs.items() if it]
    for judge in judges.values():
        problems += judge.problems() if judge is not None else []
    _raise(problems)


def check_scheduler(scheduler: object) -> None:
    """Raise a TrainerError for a scheduler whose step needs a value."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise TrainerError(
            "Trainer: scheduler: ReduceLROnPlateau steps with a value, which nobody gives it here: take another one, or"
            " write the loop yourself with State, run and batches"
        )


def check_measured(names: Mapping[str, object], judges: Mapping[str, EarlyStop | KeepBest | None]) -> None:
    """Raise a TrainerError if `measure` has not returned what is judged.

    Args:
        names: what it returned, by name.
        judges: as for `check_arguments`.
    """
    measured = ", ".join(sorted(names)) or "nothing"
    _raise(
        [
            f"{name}.metric: {judge.metric!r} is not measured: `measure` returned {measured}"
            for name, judge in judges.items()
            if judge is not None and judge.metric not in names
        ]
    )


def _raise(problems: list[str]) -> None:
    if problems:
        raise TrainerError("Trainer: " + "; ".join(problems))
