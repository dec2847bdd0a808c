"""`Trainer`: the complete elastic training loop.

It uses only public parts (`State`, `run`, `batches`, `agree`), so that a script can replace it by its own loop at any
time.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_OUTPUT, ENV_TENSORBOARD
from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.collectives.distributed_optimizer import average_gradients
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.run import run
from hvd_elastic.trainer.fit.best_model import BestFiles, best_url
from hvd_elastic.trainer.fit.compilation import compiled, mark_batch
from hvd_elastic.trainer.fit.early_stop import why_ended
from hvd_elastic.trainer.fit.evaluation import evaluate, samples_in
from hvd_elastic.trainer.fit.fit_progress import FitProgress, Outbox
from hvd_elastic.trainer.fit.flat_arguments import take_options
from hvd_elastic.trainer.fit.moments import BestEvaluation, Moment, MomentKind
from hvd_elastic.trainer.fit.precision import MixedPrecision, Precision
from hvd_elastic.trainer.fit.progress_display import progress_display
from hvd_elastic.trainer.fit.reporting import Reporter
from hvd_elastic.trainer.fit.trainer_checks import (
    SchedulePer,
    TrainerError,
    check_arguments,
    check_measured,
    check_scheduler,
)
from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation, Evaluation, Reporting
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.state.agreement import agree
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.telemetry.console import say

logger = logging.getLogger(__name__)

Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
"""Takes the model and a batch, both on the device; returns the mean loss over the batch."""

FIT_PROGRESS: Final = "fit_progress"
"""The name of a `FitProgress` in the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOutcome:
    """The result of `Trainer.fit()`, the same on every worker, and the same when a finished job is started again."""

    steps: int
    """Optimizer steps since the job began, over all its workers and restarts."""
    why: str
    """Why training has ended: `all 20 epochs are done`, `stopped early: ...`, or the words of a callback's `Stop`."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """Means of the last evaluation, by name; empty without an evaluation set."""
    best: BestEvaluation | None = None
    """The best evaluation, and its file; None without `keep_best`."""


class Trainer:
    """Trains a model for a number of epochs or steps, over any resizes and restarts of the job.

    Example:
        ```python
        import torch
        import torch.nn.functional as F
        import hvd_elastic as elastic

        trainer = elastic.Trainer(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
            data=train_set,
            epochs=20,
            global_batch_size=1024,
            evaluation=elastic.Evaluation(data=test_set, early_stop=elastic.EarlyStop(patience=3)),
        )
        result = trainer.fit()
        print(result.steps, result.why, result.evaluation["loss"])
        ```

    Creating a Trainer initializes Horovod, or torch.distributed, and joins the job. Nothing is trained before `fit()`.

    The object's attribute `state` is its `elastic.State`.

    Args:
        model: the model. It is moved to `device`.
        optimizer: a plain optimizer over the model's parameters: the Trainer has their gradients averaged, by
            `hvd.DistributedOptimizer` or DistributedDataParallel; or a `ShardedOptimizer`, which does that itself.
        loss: takes the model and a batch, both on the device, and returns the mean loss over the batch, a scalar
            tensor.
        data: the training data set, map-style or iterable, the same on every worker, or a DataLoader over it (see
            `State.batches`).
        epochs: number of epochs of the whole job, over all restarts; at least 1.
        max_steps: most optimizer steps of the whole job, over all restarts; at least 1. The last one is evaluated. A
            job that is started again with more goes on. Default None: until all epochs are done.
        batch_size: samples per step and worker. Give either this or `global_batch_size`. The job's own batch size
            (`HVD_ELASTIC_BATCH_GLOBAL`, `HVD_ELASTIC_BATCH_PER_WORKER`) takes precedence over both.
        global_batch_size: samples per step over all workers.
        micro_batch_size: most samples in one forward and backward pass. The gradients of a larger share are
            accumulated. Default None: the whole share at once.
        scheduler: takes the optimizer, as Horovod has wrapped it, and returns a learning-rate scheduler, which becomes
            part of the state. Default None: a constant learning rate.
        schedule_per: `"epoch"` or `"step"`: when the scheduler is stepped. Default `"epoch"`.
        evaluation: an `Evaluation`: on which data, when, by what, and what follows from it; or the data set alone.
            Default None: no evaluation.
        computation: a `Computation`: precision, clipping, `torch.compile`, device. Default None: its defaults.
        checkpointing: a `Checkpointing`: when training commits, and where commits become durable. Default None: its
            defaults.
        reporting: a `Reporting`: callbacks, TensorBoard, progress. Default None: its defaults.
        loading: options for `State.batches` and torch's DataLoader: `num_workers`, `collate_fn`, `shuffle`, `seed` ...
            For one release also fields of the groups under their former names, with a DeprecationWarning.

    Raises:
        TrainerError: an argument cannot be used, or is given both in its group and flat; the message names every
            problem.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        loss: Loss,
        data: Any,
        epochs: int,
        max_steps: int | None = None,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        schedule_per: SchedulePer | str = SchedulePer.EPOCH,
        evaluation: Evaluation | Any = None,
        computation: Computation | None = None,
        checkpointing: Checkpointing | None = None,
        reporting: Reporting | None = None,
        **loading: Any,
    ) -> None:
        groups = {
            "evaluation": evaluation,
            "computation": computation,
            "checkpointing": checkpointing,
            "reporting": reporting,
        }
        self._options = options = take_options(groups, loading)
        check_arguments(options, model, optimizer, epochs=epochs, max_steps=max_steps, schedule_per=schedule_per)
        horovod_patches.init()
        chosen = options.computation
        self._device = torch.device(chosen.device) if chosen.device is not None else _default_device()
        self._model = model.to(self._device)
        self._called = compiled(self._model, chosen.torch_compile)
        self._marks_batches = chosen.torch_compile is not False
        self._loss, self._optimizer = (
            (loss, optimizer)
            if isinstance(optimizer, ShardedOptimizer)
            else average_gradients(loss, self._model, optimizer)
        )
        self._data, self._epochs, self._max_steps = data, epochs, max_steps
        self._batch_options = {
            **loading,
            "batch_size": batch_size,
            "global_batch_size": global_batch_size,
            "micro_batch_size": micro_batch_size,
        }
        own_size = data.batch_size if isinstance(data, DataLoader) else None
        self._evaluation_batch = micro_batch_size or batch_size or global_batch_size or own_size or 1
        self._evaluation, self._reporting = options.evaluation, options.reporting
        self._checkpointing = options.checkpointing
        self._measure = self._evaluation.measure or (lambda model, batch: {"loss": loss(model, batch)})
        self._scheduler = scheduler(self._optimizer) if scheduler is not None else None
        check_scheduler(self._scheduler)
        self._schedule_per = SchedulePer(schedule_per)
        self._mixed_precision = MixedPrecision(
            Precision(chosen.precision), device=self._device, clip_norm=chosen.clip_norm
        )
        self._display = progress_display(enabled=self._reporting.progress)
        self._progress = FitProgress()
        self._outbox = Outbox(self._progress)
        self._begun = False
        self.state = self._make_state()
        self._reporter = Reporter(
            self._progress, self._reporting.callbacks, model=self._model, commits=self.state._commits
        )

    def _make_state(self) -> State:
        objects = {"scheduler": self._scheduler, "scaler": self._mixed_precision.scaler, FIT_PROGRESS: self._progress}
        values: dict[str, Any] = {name: value for name, value in objects.items() if value is not None}
        return State(
            model=self._model,
            optimizer=self._optimizer,
            checkpoint=self._checkpointing.url,
            allow_missing=(FIT_PROGRESS,),  # a checkpoint of an earlier version has none
            overlap=self._checkpointing.overlap,
            seeding=self._options.computation.seeding,
            **values,
        )

    def fit(self) -> FitOutcome:
        """Train until all epochs or steps are done, or something stops training.

        Returns on every worker of the last world; other workers exit in it.
        """
        try:
            run(self._train)(self.state)
            outcome = self._outcome()
            if WORLD.rank() == 0:
                self._end(outcome)
        finally:
            self._display.close()
            self._reporter.close()
        return outcome

    def _outcome(self) -> FitOutcome:
        return FitOutcome(
            steps=self._progress.step,
            why=self._why_ended() or f"{count_words(self._epochs, 'epoch')} done",
            evaluation=self._progress.evaluation,
            best=self._reporter.best,
        )

    def _end(self, outcome: FitOutcome) -> None:
        self._reporter.end()
        self._reporter.call(
            Moment(
                kind=MomentKind.END,
                step=outcome.steps,
                epoch=min(self.state.epoch, self._epochs - 1),
                size=WORLD.size(),
                metrics=outcome.evaluation,
                best=outcome.best,
                why=outcome.why,
            )
        )

    def _why_ended(self) -> str:
        return why_ended(self._progress, early_stop=self._evaluation.early_stop, max_steps=self._max_steps)

    # --- Worlds ------------------------------------------------------------------------------------------------------

    def _train(self, state: State) -> None:
        self._enter_world(state)
        if self._why_ended():
            return
        for state.epoch in state.remaining_epochs(self._epochs):
            self._tell(state)  # what the commit at the end of the epoch before holds
            if self._why_ended():
                break
            self._train_epoch(state)
            if self._why_ended():
                break
            self._end_epoch(state)
        self._tell(state)

    def _enter_world(self, state: State) -> None:
        """Begin a world on every worker: rank 0 tells what may not have been told."""
        if self._why_ended() and not self._begun and WORLD.rank() == 0:
            say(logger, f"training had ended before this start, at step {self._progress.step}: {self._why_ended()}")
        self._begun = True
        self._display.close()
        self._reporter.begin_world(
            tensorboard=os.environ.get(ENV_TENSORBOARD) or self._reporting.tensorboard, best_files=self._best_files()
        )
        if WORLD.rank() == 0:
            epoch, best = min(state.epoch, self._epochs - 1), self._reporter.best
            moment = Moment(kind=MomentKind.RESUME, step=self._progress.step, epoch=epoch, size=WORLD.size(), best=best)
            self._reporter.call(moment)
        self._tell(state, decides=True)

    def _best_files(self) -> BestFiles | None:
        keep_best, name = self._evaluation.keep_best, self._options.name
        if keep_best is None:
            return None
        place = os.environ.get(ENV_CHECKPOINT) or self._checkpointing.url
        url = best_url(keep_best, checkpoint=place, output=os.environ.get(ENV_OUTPUT))
        if url is None:
            raise TrainerError(
                f"Trainer: {name('evaluation.keep_best')}: there is no place for the best model: give KeepBest(url=...)"
                f" or `{name('checkpointing.url')}`, or the job `checkpoint` or `output`"
            )
        known = self._reporter.best_files
        if known is not None and known.url == url and WORLD.rank() == 0:
            return known  # it may hold a file that is not written yet
        return BestFiles(url)

    def _tell(self, state: State, *, decides: bool = False) -> None:
        """Tell what the last commit holds, and stop if a callback wants to. Called on every worker at the same places.

        `decides`: the callbacks may have answered even if there is nothing new to tell.
        """
        decides |= bool(self._progress.facts)
        for fact in self._outbox.take():
            if WORLD.rank() == 0:
                self._reporter.tell(fact)
                self._outbox.mark_told(fact)
        if decides and self._reporting.callbacks:
            why = agree(self._reporter.stop_asked)
            if why and not self._progress.stopped:
                self._progress.stopped = why
                state.commit()

    # --- Steps -------------------------------------------------------------------------------------------------------

    def _train_epoch(self, state: State) -> None:
        self._called.train()
        loss: torch.Tensor | None = None
        for batch in state.batches(self._data, **self._batch_options):
            batch_loss = self._backward(batch, state.weight)
            loss = batch_loss if loss is None else loss + batch_loss
            self._count(samples_in(batch) * WORLD.size())
            if state.accumulating:
                continue
            self._mixed_precision.step(self._model, self._optimizer)
            self._outbox.step_done()
            self._progress.step += 1
            self._end_step(state, loss)
            if self._why_ended():
                break
            loss = None

    def _backward(self, batch: Any, weight: float) -> torch.Tensor:
        with self._mixed_precision.autocast():
            loss = self._loss(self._called, self._to_device(batch))
        if weight != 1.0:
            loss = loss * weight
        self._mixed_precision.backward(loss)
        return loss.detach()

    def _end_step(self, state: State, loss: torch.Tensor) -> None:
        step = self._progress.step
        if step % self._reporting.log_every == 0:
            self._record_step(state, loss)
        if self._scheduler is not None and self._schedule_per is SchedulePer.STEP:
            self._scheduler.step()
        self._show_step(state, loss)
        if self._evaluation.data is not None and self._is_evaluated(step):
            self._evaluate(state)
        if step % self._checkpointing.commit_every == 0 or self._progress.evaluated_step == step or self._why_ended():
            state.commit(loss=loss)
            self._tell(state)

    def _is_evaluated(self, step: int) -> bool:
        every = self._evaluation.every
        return step == self._max_steps or (every is not None and step % every == 0)

    def _end_epoch(self, state: State) -> None:
        """Do what the commit that ends the epoch holds: after an interruption, training comes back to this place."""
        at_end = self._evaluation.every is None or state.epoch + 1 == self._epochs
        is_due = at_end and self._progress.evaluated_step != self._progress.step
        if self._evaluation.data is not None and is_due:
            self._evaluate(state)
        if self._scheduler is not None and self._schedule_per is SchedulePer.EPOCH:
            self._scheduler.step()
        state.commit()

    # --- Figures -----------------------------------------------------------------------------------------------------

    def _record_step(self, state: State, loss: torch.Tensor) -> None:
        mean = torch.tensor([float(loss)], dtype=torch.float64)
        if WORLD.size() > 1:  # each worker has the weighted loss of its share: this is the mean over the whole step
            mean = WORLD.allreduce(mean, op=ReduceOp.AVERAGE, name="hvd_elastic.loss")
        metrics = {"loss": mean.item(), "learning_rate": float(self._optimizer.param_groups[0]["lr"])}
        self._progress.record(MomentKind.STEP.value, epoch=state.epoch, size=WORLD.size(), metrics=metrics)

    def _evaluate(self, state: State) -> None:
        collate = {
            name: self._batch_options[name] for name in ("collate_fn", "num_workers") if name in self._batch_options
        }
        with self._mixed_precision.autocast():
            means = evaluate(
                self._called,
                self._measure,
                self._evaluation.data,
                batch_size=self._evaluation_batch,
                to_device=self._to_device,
                **collate,
            )
        check_measured(means, self._options.judges())
        early_stop, keep_best = self._evaluation.early_stop, self._evaluation.keep_best
        progress = self._progress
        progress.evaluation, progress.evaluated_step = means, progress.step
        if early_stop is not None:
            early_stop.note(progress)
        is_best = keep_best is not None and keep_best.note(progress, epoch=state.epoch)
        progress.record(
            MomentKind.EVALUATION.value, epoch=state.epoch, size=WORLD.size(), metrics=means, is_best=is_best
        )
        if WORLD.rank() == 0:
            self._show(state, means)

    def _count(self, samples: int) -> None:
        self._display.count(samples)
        self._reporter.count(samples)

    def _show_step(self, state: State, loss: torch.Tensor) -> None:
        """Show progress if that is due. Only here is the loss of any step copied from the device."""
        if WORLD.rank() == 0 and self._display.due():
            self._show(state, {"loss": float(loss), "learning_rate": float(self._optimizer.param_groups[0]["lr"])})

    def _show(self, state: State, values: Mapping[str, float]) -> None:
        samples = state.samples
        self._display.show(
            where=f"epoch {state.epoch + 1} of {self._epochs}, step {self._progress.step}",
            part=(samples.seen + samples.uncommitted) / samples.due if samples.due else None,
            size=WORLD.size(),
            values=values,
        )

    def _to_device(self, batch: Any) -> Any:
        moved = _moved(batch, self._device)
        if self._marks_batches:
            mark_batch(moved)
        return moved


def _moved(batch: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: _moved(value, device) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return tuple(_moved(value, device) for value in batch)
    return batch


def _default_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(WORLD.local_rank())
    return torch.device("cuda", WORLD.local_rank())
