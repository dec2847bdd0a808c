"""`Trainer`: the whole elastic loop, for those who want none of their own.

It is written on the public parts only (`State`, `run`, `batches`), so that a script can leave it at any time and write
the same loop itself::

    Trainer(model, optimizer, loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
            data=train_set, epochs=20, global_batch_size=1024, evaluation=test_set).fit()
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import horovod.torch as hvd
import torch

from hvd_elastic.mpijob.contract import ENV_TENSORBOARD, Exit, HvdElasticError
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.run import run
from hvd_elastic.trainer.fit.evaluation import Measure, evaluate, samples_in
from hvd_elastic.trainer.fit.precision import MixedPrecision, Precision
from hvd_elastic.trainer.fit.training_log import ProgressLog, TensorBoardWriter
from hvd_elastic.trainer.state.elastic_state import State

Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
"""Model and batch, both on the device, to the mean loss over the batch."""


class TrainerError(HvdElasticError):
    """The trainer was given what cannot work; every problem is named."""

    exit_code = Exit.SCRIPT_MISTAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOutcome:
    """What `fit` comes back with."""

    steps: int
    """Commits since the job began, over all its workers and restarts."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """Means over the evaluation set after the last epoch; empty without one."""


class Trainer:
    """Trains `model` on `data` for `epochs`, over any resizes and restarts."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        loss: Loss,
        data: Any,
        epochs: int,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        evaluation: Any = None,
        measure: Measure | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        precision: Precision | str = Precision.FULL,
        clip_norm: float | None = None,
        commit_every: int = 1,
        tensorboard: str | None = None,
        checkpoint: str | None = None,
        device: torch.device | str | None = None,
        **loading: Any,
    ) -> None:
        """Join the job. Nothing is trained before `fit`.

        Args:
            model: moved to `device`.
            optimizer: a plain one over the model's parameters; it is wrapped for Horovod here.
            loss: see Loss.
            data: map-style or iterable, the same on every worker.
            epochs: in all, over restarts.
            batch_size: samples per step and worker, as for `State.batches`.
            global_batch_size: samples per step over all workers, instead.
            micro_batch_size: most samples at once; a larger share is accumulated.
            evaluation: map-style; measured after every epoch.
            measure: means to report of an evaluation batch; the loss where it is not given.
            scheduler: makes the learning rate's scheduler of the wrapped optimizer; stepped after every epoch.
            precision: a value of Precision.
            clip_norm: most that the norm of the averaged gradient may be.
            commit_every: optimizer steps between commits. What a lost peer costs; hosts come and go at commits only.
            tensorboard: folder for events; the job's own (`contract.ENV_TENSORBOARD`) comes first.
            checkpoint: URL of the durable tier, as for `State`.
            device: the GPU of the local rank where there is one.
            loading: for `State.batches` and torch's DataLoader: `num_workers`, `collate_fn`, `shuffle`, `seed` ...

        Raises:
            TrainerError: with every problem.
        """
        _check(epochs=epochs, commit_every=commit_every, clip_norm=clip_norm, precision=precision, optimizer=optimizer)
        horovod_patches.init()
        self._device = torch.device(device) if device is not None else _own_device()
        self._model = model.to(self._device)
        self._optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        self._loss, self._data, self._epochs = loss, data, epochs
        self._loading = {
            **loading,
            "batch_size": batch_size,
            "global_batch_size": global_batch_size,
            "micro_batch_size": micro_batch_size,
        }
        self._evaluation_batch = micro_batch_size or batch_size or global_batch_size or 1
        self._evaluation, self._measure = evaluation, measure or (lambda model, batch: {"loss": loss(model, batch)})
        self._scheduler = scheduler(self._optimizer) if scheduler is not None else None
        self._arithmetic = MixedPrecision(Precision(precision), device=self._device, clip_norm=clip_norm)
        self._commit_every = commit_every
        self._board = TensorBoardWriter(os.environ.get(ENV_TENSORBOARD) or tensorboard)
        self._progress = ProgressLog()
        self._result: dict[str, float] = {}
        objects: dict[str, Any] = {"scheduler": self._scheduler, "scaler": self._arithmetic.scaler}
        self.state = State(
            model=model,
            optimizer=self._optimizer,
            checkpoint=checkpoint,
            **{name: value for name, value in objects.items() if value is not None},
        )

    def fit(self) -> FitOutcome:
        """Train until all epochs are done; on every worker of the last world."""
        try:
            run(self._train)(self.state)
        finally:
            self._board.close()
        return FitOutcome(steps=self.state.step_count, evaluation=self._result)

    def _train(self, state: State) -> None:
        self._board.close()
        for state.epoch in state.remaining_epochs(self._epochs):
            self._epoch(state)
            # Measured before the commit that ends the epoch: an interruption here comes back to this very place.
            if self._evaluation is not None:
                self._evaluate(state)
            if self._scheduler is not None:
                self._scheduler.step()
            state.commit()

    def _epoch(self, state: State) -> None:
        self._model.train()
        loss: torch.Tensor | None = None
        since = 0
        for batch in state.batches(self._data, **self._loading):
            part = self._backward(batch, state.weight)
            loss = part if loss is None else loss + part
            self._progress.count(samples_in(batch) * hvd.size())
            if state.accumulating:
                continue
            self._arithmetic.step(self._model, self._optimizer)
            self._tell(state, loss)
            since += 1
            if since == self._commit_every:
                state.commit(loss=loss)
                since = 0
            loss = None

    def _backward(self, batch: Any, weight: float) -> torch.Tensor:
        with self._arithmetic.autocast():
            loss = self._loss(self._model, self._place(batch))
        if weight != 1.0:
            loss = loss * weight
        self._arithmetic.backward(loss)
        return loss.detach()

    def _tell(self, state: State, loss: torch.Tensor) -> None:
        """Only here is the loss fetched from the device."""
        if hvd.rank() == 0 and self._progress.due():
            values = {"loss": float(loss), "learning_rate": self._optimizer.param_groups[0]["lr"]}
            told = self._progress.tell(
                epoch=state.epoch, epochs=self._epochs, step=state.step_count, size=hvd.size(), values=values
            )
            self._board.write(state.step_count, {f"train/{name}": value for name, value in told.items()})

    def _evaluate(self, state: State) -> None:
        collate = {name: self._loading[name] for name in ("collate_fn", "num_workers") if name in self._loading}
        with self._arithmetic.autocast():
            self._result = evaluate(
                self._model,
                self._measure,
                self._evaluation,
                batch_size=self._evaluation_batch,
                place=self._place,
                **collate,
            )
        if hvd.rank() == 0:
            self._progress.tell(
                epoch=state.epoch, epochs=self._epochs, step=state.step_count, size=hvd.size(), values=self._result
            )
            self._board.write(state.step_count, {f"evaluation/{name}": v for name, v in self._result.items()})

    def _place(self, batch: Any) -> Any:
        if self._device.type == "cpu":
            return batch
        if isinstance(batch, torch.Tensor):
            return batch.to(self._device, non_blocking=True)
        if isinstance(batch, Mapping):
            return {name: self._place(value) for name, value in batch.items()}
        if isinstance(batch, list | tuple):
            return tuple(self._place(value) for value in batch)
        return batch


def _check(
    *, epochs: int, commit_every: int, clip_norm: float | None, precision: str, optimizer: torch.optim.Optimizer
) -> None:
    problems = [
        f"{name}: {value} is below 1"
        for name, value in (("epochs", epochs), ("commit_every", commit_every))
        if value < 1
    ]
    if clip_norm is not None and not clip_norm > 0:
        problems.append(f"clip_norm: {clip_norm} is not above 0")
    if precision not in tuple(Precision):
        problems.append(f"precision: {precision!r} is none of {', '.join(Precision)}")
    if hasattr(optimizer, "skip_synchronize"):
        problems.append("optimizer: it is wrapped by hvd.DistributedOptimizer already: give the plain one")
    if problems:
        raise TrainerError("Trainer: " + "; ".join(problems))


def _own_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank())
    return torch.device("cuda", hvd.local_rank())
