"""What a `Trainer` tells its callbacks: one frozen value for each moment, and what a callback may answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MomentKind(StrEnum):
    """When a callback is called."""

    RESUME = "resume"
    """A world begins: at the start, after each resize and after each restart. Nothing is committed by it."""
    STEP = "step"
    """The commit that holds this step is made. Only every `log_every`-th step is told."""
    EVALUATION = "evaluation"
    """The commit that holds this evaluation is made."""
    END = "end"
    """`fit()` is about to return. Told again when a finished job is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEvaluation:
    """The best evaluation so far, by the metric of `KeepBest`."""

    step: int
    epoch: int
    """From 0."""
    metric: str
    value: float
    url: str
    """Of the file that `torch.load` reads: a dict of `model`, `step`, `epoch` and `metrics`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What rank 0 tells a callback. It cannot be changed, and holds no tensor."""

    kind: MomentKind
    step: int
    """Optimizer steps since the job began, over all its workers and restarts."""
    epoch: int
    """From 0."""
    size: int
    """Number of workers in the world that took the step."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of a step: `loss` (the mean over all workers' samples of this step), `learning_rate`, and `samples_per_second`
    over all workers, if it is known. Of an evaluation: what `measure` returned, averaged. At the end: those of the last
    evaluation. Else empty."""
    is_best: bool = False
    """This evaluation is the best so far, and its file is written."""
    best: BestEvaluation | None = None
    """The best evaluation so far. Always None without `keep_best`."""
    why: str = ""
    """At the end: why training has ended, as `FitOutcome.why`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A callback returns it to end training: all workers stop together, and a restart of the job trains no further."""

    why: str
    """For `FitOutcome.why`; not empty."""


Callback = Callable[[Moment], Stop | None]
"""Called on rank 0 only, in the training thread: the other workers wait in the next step until it returns."""
