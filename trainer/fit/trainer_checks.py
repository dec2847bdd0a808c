"""What is wrong with the arguments of a `Trainer`, found before anything starts."""

from collections.abc import Mapping
from enum import StrEnum

import torch
from torch.nn.parallel import DistributedDataParallel

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.collectives.module_division import is_divided
from hvd_elastic.trainer.fit.best_model import KeepBest
from hvd_elastic.trainer.fit.early_stop import EarlyStop
from hvd_elastic.trainer.fit.precision import Precision
from hvd_elastic.trainer.fit.trainer_options import TrainerOptions
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
    options: TrainerOptions,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    max_steps: int | None,
    schedule_per: str,
) -> None:
    """Raise a TrainerError that names every problem, each by what the script calls it."""
    name, computation = options.name, options.computation
    counts = {
        "epochs": epochs,
        "max_steps": max_steps,
        name("evaluation.every"): options.evaluation.every,
        name("checkpointing.commit_every"): options.checkpointing.commit_every,
        name("reporting.log_every"): options.reporting.log_every,
    }
    problems = [*options.problems]
    problems += [f"{what}: {value} is below 1" for what, value in counts.items() if value is not None and value < 1]
    if computation.clip_norm is not None and not computation.clip_norm > 0:
        problems.append(f"{name('computation.clip_norm')}: {computation.clip_norm} is not above 0")
    if computation.precision not in tuple(Precision):
        wrong = f"{computation.precision!r} is not one of {', '.join(Precision)}"
        problems.append(f"{name('computation.precision')}: {wrong}")
    if schedule_per not in tuple(SchedulePer):
        problems.append(f"schedule_per: {schedule_per!r} is not one of {', '.join(SchedulePer)}")
    _raise(problems + _averaging_problems(model, optimizer) + _evaluation_problems(options))


def _averaging_problems(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return what keeps the Trainer from averaging the gradients of all that is stepped, once."""
    problems = []
    if isinstance(model, DistributedDataParallel):
        problems.append("model: it is already wrapped by DistributedDataParallel: give the plain one")
    if is_divided(model):
        problems.append(
            "model: fully_shard has divided it, and workers make unlike numbers of passes in an evaluation: write the "
            "loop yourself, with State, run and batches"
        )
    if isinstance(optimizer, ShardedOptimizer):
        return problems
    if hasattr(optimizer, "skip_synchronize"):
        problems.append("optimizer: it is already wrapped by hvd.DistributedOptimizer: give the plain one")
    known = {id(parameter) for parameter in model.parameters()}
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if others := len(stepped - known):
        problems.append(f"optimizer: it steps {count_words(others, 'parameter')} that the model does not have")
    return problems


def _evaluation_problems(options: TrainerOptions) -> list[str]:
    problems, judges = [], options.judges()
    if options.evaluation.data is None:
        needs = [options.name("evaluation.every")] if options.evaluation.every else []
        data = options.name("evaluation.data")
        problems = [f"{what}: there is nothing to evaluate: give `{data}` too" for what in (*needs, *judges)]
    return problems + [f"{what}.{problem}" for what, judge in judges.items() for problem in judge.problems()]


def check_scheduler(scheduler: object) -> None:
    """Raise a TrainerError for a scheduler whose step needs a value."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise TrainerError(
            "Trainer: scheduler: ReduceLROnPlateau steps with a value, which nobody gives it here: take another one, or"
            " write the loop yourself with State, run and batches"
        )


def check_measured(names: Mapping[str, object], judges: Mapping[str, EarlyStop | KeepBest]) -> None:
    """Raise a TrainerError if `measure` has not returned what is judged."""
    measured = ", ".join(sorted(names)) or "nothing"
    _raise(
        [
            f"{what}.metric: {judge.metric!r} is not measured: `measure` returned {measured}"
            for what, judge in judges.items()
            if judge.metric not in names
        ]
    )


def _raise(problems: list[str]) -> None:
    if problems:
        raise TrainerError("Trainer: " + "; ".join(problems))
