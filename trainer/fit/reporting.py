"""What rank 0 does with what is committed: the best model's file, TensorBoard events and the callbacks."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hvd_elastic.trainer.fit.best_model import BestFiles
from hvd_elastic.trainer.fit.fit_progress import FitProgress
from hvd_elastic.trainer.fit.moments import BestEvaluation, Callback, Moment, MomentKind, Stop
from hvd_elastic.trainer.fit.tensorboard_writer import TensorBoardWriter
from hvd_elastic.trainer.state.commits import Commits

logger = logging.getLogger(__name__)


class Reporter:
    """Tells facts on rank 0, in this order: the best model's file, TensorBoard, the callbacks in the order given.

    An error of a callback is logged with its traceback, and training goes on: raised, it would end rank 0, and then
    each worker that takes its place.
    """

    def __init__(
        self,
        progress: FitProgress,
        callbacks: Sequence[Callback],
        *,
        model: torch.nn.Module,
        commits: Commits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write nothing yet: a standby learns the job's folders only when it is adopted."""
        self._progress, self._callbacks, self._model, self._commits = progress, callbacks, model, commits
        self._tensorboard = TensorBoardWriter(None)
        self._rate = SampleRate(clock)
        self.best_files: BestFiles | None = None
        """None without `keep_best`."""
        self.stop_asked = ""
        """Why a callback wants to end training. Kept by this process, because it must survive a roll-back."""

    def begin_world(self, *, tensorboard: str | None, best_files: BestFiles | None) -> None:
        """A world begins, in which this process may have another rank. Called on every rank."""
        self._tensorboard.close()
        self._tensorboard = TensorBoardWriter(tensorboard)
        self.best_files = best_files
        self._rate.restart()

    def count(self, samples: int) -> None:
        self._rate.count(samples)

    @property
    def best(self) -> BestEvaluation | None:
        return self.best_files.best(self._progress) if self.best_files is not None else None

    def tell(self, fact: Mapping[str, Any]) -> None:
        """Tell a fact of the last commit."""
        metrics = dict(fact["metrics"])
        is_best = bool(fact.get("is_best"))
        if fact["kind"] == MomentKind.EVALUATION:
            self._keep_best(metrics, is_best=is_best)
            self._tensorboard.write(fact["step"], {f"evaluation/{name}": value for name, value in metrics.items()})
        else:
            metrics |= self._rate.take()
            shown = {**metrics, "world_size": fact["size"]}
            self._tensorboard.write(fact["step"], {f"train/{name}": value for name, value in shown.items()})
        where = {name: fact[name] for name in ("step", "epoch", "size")}
        self.call(Moment(kind=MomentKind(fact["kind"]), **where, metrics=metrics, is_best=is_best, best=self.best))

    def call(self, moment: Moment) -> None:
        for callback in self._callbacks:
            try:
                answer = callback(moment)
            except Exception:
                logger.exception("a callback failed at the moment %s, step %d", moment.kind, moment.step)
            else:
                if isinstance(answer, Stop):
                    self.stop_asked = self.stop_asked or answer.why or "a callback has stopped it"

    def _keep_best(self, metrics: Mapping[str, float], *, is_best: bool) -> None:
        if self.best_files is None:
            return
        if is_best:
            self.best_files.write(self._progress, self._model, metrics)
        else:
            self.best_files.flush()
        self._delete_old()

    def _delete_old(self) -> None:
        if self.best_files is not None:
            durable = self._commits.durable
            self.best_files.delete_old(
                self._progress,
                commit=self._commits.step,
                durable_commit=durable.durable_step,
                restorable=durable.settings.configured,
            )

    def end(self) -> None:
        if self.best_files is not None:
            self.best_files.flush()
            self._delete_old()

    def close(self) -> None:
        self._tensorboard.close()


class SampleRate:
    """Samples per second since it was last asked for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since, self._samples = clock(), 0

    def restart(self) -> None:
        """Training has paused: what was before counts no more."""
        self._since, self._samples = self._clock(), 0

    def count(self, samples: int) -> None:
        self._samples += samples

    def take(self) -> dict[str, float]:
        """Return `samples_per_second`, and begin anew; nothing if no samples were taken."""
        seconds, samples = self._clock() - self._since, self._samples
        self.restart()
        return {"samples_per_second": samples / seconds} if samples and seconds > 0 else {}
