"""When training ends before all its epochs are done: pure decisions over what is committed."""

import math
from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.fit.fit_progress import FitProgress


class Mode(StrEnum):
    """Which value of a metric is the better one."""

    MIN = "min"
    MAX = "max"

    def improves(self, value: float, best: float | None, *, min_delta: float = 0.0) -> bool:
        """Whether `value` is better than `best` by more than `min_delta`. A NaN is never better."""
        if math.isnan(value):
            return False
        if best is None:
            return True
        return value < best - min_delta if self is Mode.MIN else value > best + min_delta


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """Stop when a metric of the evaluation no longer improves.

    The count is part of the state: a resize or a restart neither begins it anew nor counts an evaluation twice.
    """

    metric: str = "loss"
    """Name of a value that `measure` returns."""
    patience: int = 3
    """Evaluations in a row without an improvement, after which training stops; at least 1."""
    mode: Mode | str = Mode.MIN
    """`"min"` or `"max"`: which value is the better one."""
    min_delta: float = 0.0
    """A value counts as better only if it is so by more than this; at least 0."""

    def problems(self) -> list[str]:
        """Return what cannot be used: the field, and one sentence."""
        found = [f"patience: {self.patience} is below 1"] if self.patience < 1 else []
        if self.mode not in tuple(Mode):
            found.append(f"mode: {self.mode!r} is not one of {', '.join(Mode)}")
        if not self.min_delta >= 0:
            found.append(f"min_delta: {self.min_delta} is below 0")
        return found

    def note(self, progress: FitProgress) -> None:
        value = progress.evaluation[self.metric]
        if Mode(self.mode).improves(value, progress.stop_best, min_delta=self.min_delta):
            progress.stop_best, progress.misses = value, 0
        else:
            progress.misses += 1


def why_ended(progress: FitProgress, *, early_stop: EarlyStop | None, max_steps: int | None) -> str:
    """Return why training is to end now; empty if it goes on.

    Nothing of it is stored but the counts and a callback's `Stop`: a job that is started again with more steps or more
    patience goes on.
    """
    if progress.stopped:
        return progress.stopped
    if max_steps is not None and progress.step >= max_steps:
        return f"max_steps is reached: {max_steps}"
    if early_stop is not None and progress.misses >= early_stop.patience:
        best = "no number so far" if progress.stop_best is None else f"the best is {progress.stop_best:.4g}"
        misses = count_words(progress.misses, "evaluation")
        return f"stopped early: {early_stop.metric} has not improved in {misses}, {best}"
    return ""
