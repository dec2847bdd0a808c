"""The groups of a `Trainer`'s arguments: what a script may choose beside what is trained, and on which data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hvd_elastic.trainer.fit.best_model import KeepBest
from hvd_elastic.trainer.fit.early_stop import EarlyStop
from hvd_elastic.trainer.fit.evaluation import Measure
from hvd_elastic.trainer.fit.moments import Callback
from hvd_elastic.trainer.fit.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a `Trainer` evaluates, when, and what follows from it. All workers evaluate together, each sample once."""

    data: Any
    """A map-style data set. None: no evaluation."""
    every: int | None = None
    """Steps between two evaluations, at least 1. Default None: after every epoch. The end of the last epoch and the
    last of `max_steps` are evaluated in any case."""
    measure: Measure | None = None
    """Takes the model and a batch of `data`, both on the device, and returns means over the batch by name, as scalar
    tensors. Default None: the loss, as `loss`."""
    early_stop: EarlyStop | None = None
    """When to stop because a metric no longer improves. Default None: never."""
    keep_best: KeepBest | None = None
    """By which metric the best model is kept, and where. Default None: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """How a `Trainer` computes a step."""

    precision: Precision | str = Precision.FULL
    """`"full"`, `"bf16"` or `"fp16"`. The last two use `torch.autocast`, `"fp16"` a gradient scaler too, which becomes
    part of the state."""
    clip_norm: float | None = None
    """Upper bound on the norm of the averaged, unscaled gradient, above 0. Default None: no clipping."""
    torch_compile: bool | Mapping[str, Any] = False
    """Compile the model with `torch.compile`, for batches of any size, so that a resize needs no other code. A mapping
    has arguments for `torch.compile`."""
    seeding: bool = True
    """Seed the random number generators for each sample and each batch, as for `State`."""
    device: torch.device | str | None = None
    """Of the model. Default None: the GPU with the local rank's number, or the CPU if there is no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """When a `Trainer` commits, and where commits become durable."""

    commit_every: int = 1
    """Optimizer steps between two commits, at least 1. A lost worker costs the steps since the last commit, and workers
    come and go only at commits. An evaluation is always committed."""
    url: str | None = None
    """Of the durable tier, as for `State`; the job's own takes precedence. Default None: no durable tier, unless the
    job names one."""
    overlap: bool = False
    """Copy parameters and optimizer state while the next step computes, as for `State`. Only if `loss`, `measure` and
    the model never change a parameter themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """Whom a `Trainer` tells how far it is."""

    callbacks: Sequence[Callback] = ()
    """Functions that rank 0 calls with a `Moment`, in this order."""
    log_every: int = 50
    """Steps between two steps that callbacks and TensorBoard are told, at least 1. 50 as in PyTorch Lightning."""
    tensorboard: str | None = None
    """Folder for TensorBoard events; the job's own (`HVD_ELASTIC_TENSORBOARD`) takes precedence. Default None: no
    events, unless the job names a folder."""
    progress: bool = True
    """Show on rank 0 how far training is: a bar where stderr is a terminal, elsewhere a line each 10 s and at each
    evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOptions:
    """All groups of one `Trainer`."""

    evaluation: Evaluation
    """Without `data`: there is no evaluation."""
    computation: Computation
    checkpointing: Checkpointing
    reporting: Reporting
    written: Mapping[str, str] = field(default_factory=dict)
    """By field (`evaluation.every`): what the script calls it, where that is another name."""
    problems: Sequence[str] = ()
    """What could not be put into groups, one sentence each."""

    def name(self, path: str) -> str:
        """What the script calls a field, for messages."""
        return self.written.get(path, path)

    def judges(self) -> dict[str, EarlyStop | KeepBest]:
        """What judges evaluations, by what the script calls it."""
        found = {"early_stop": self.evaluation.early_stop, "keep_best": self.evaluation.keep_best}
        return {self.name(f"evaluation.{field}"): judge for field, judge in found.items() if judge is not None}
