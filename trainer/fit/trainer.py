"""`Trainer`: the complete elastic training loop.

It uses only public parts (`State`, `run`, `batches`), so that a script can replace it by its own loop at any time.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader

from hvd_elastic.mpijob.contract import ENV_TENSORBOARD, Exit, HvdElasticError
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.run import run
from hvd_elastic.trainer.fit.evaluation import Measure, evaluate, samples_in
from hvd_elastic.trainer.fit.precision import MixedPrecision, Precision
from hvd_elastic.trainer.fit.training_log import ProgressLog, TensorBoardWriter
from hvd_elastic.trainer.state.elastic_state import State

Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
"""Takes the model and a batch, both on the device; returns the mean loss over the batch."""


class TrainerError(HvdElasticError):
    """Arguments of the Trainer cannot be used; the message names every problem."""

    exit_code = Exit.SCRIPT_MISTAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOutcome:
    """The result of `Trainer.fit()`."""

    steps: int
    """Commits since the job began, over all its workers and restarts."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """Means over the evaluation set after the last epoch, by name; empty without an evaluation set."""


class Trainer:
    """Trains a model for a number of epochs, over any resizes and restarts of the job.

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
            evaluation=test_set,
        )
        result = trainer.fit()
        print(result.steps, result.evaluation["loss"])
        ```

    Creating a Trainer initializes Horovod and joins the job. Nothing is trained before `fit()`.

    The object's attribute `state` is its `elastic.State`.

    Args:
        model: the model. It is moved to `device`.
        optimizer: a plain optimizer over the model's parameters. The Trainer wraps it with `hvd.DistributedOptimizer`.
        loss: takes the model and a batch, both on the device, and returns the mean loss over the batch, a scalar
            tensor.
        data: the training data set, map-style or iterable, the same on every worker, or a DataLoader over it (see
            `State.batches`).
        epochs: number of epochs of the whole job, over all restarts; at least 1.
        batch_size: samples per step and worker. Give either this or `global_batch_size`. The job's own batch size
            (`HVD_ELASTIC_BATCH_GLOBAL`, `HVD_ELASTIC_BATCH_PER_WORKER`) takes precedence over both.
        global_batch_size: samples per step over all workers.
        micro_batch_size: most samples in one forward and backward pass. The gradients of a larger share are
            accumulated. Default None: the whole share at once.
        evaluation: a map-style data set that is evaluated after every epoch, on all workers together. Default None: no
            evaluation.
        measure: takes the model and an evaluation batch, both on the device, and returns means over the batch by name,
            as scalar tensors. Default None: the loss, as `loss`.
        scheduler: takes the wrapped optimizer and returns a learning-rate scheduler, which is stepped after every
            epoch. Default None: a constant learning rate.
        precision: `"full"`, `"bf16"` or `"fp16"`. The last two use `torch.autocast`, `"fp16"` a gradient scaler too.
            Default `"full"`.
        clip_norm: upper bound on the norm of the averaged gradient, above 0. Default None: no clipping.
        commit_every: optimizer steps between two commits, at least 1. Default 1. A lost worker costs the steps since
            the last commit, and hosts are added and removed only at commits.
        tensorboard: folder for TensorBoard events. The job's own (`HVD_ELASTIC_TENSORBOARD`) takes precedence. Default
            None: no events, unless the job names a folder.
        checkpoint: URL of the durable tier, as for `State`. Default None: no durable tier, unless the job names one.
        overlap: copy parameters and optimizer state while the next step computes, as for `State`. Only if `loss`,
            `measure` and the model never change a parameter themselves. Default False.
        seeding: seed the random number generators for each sample and each batch, as for `State`. Default True.
        device: device of the model. Default None: the GPU with the local rank's number, or the CPU if there is no GPU.
        loading: options for `State.batches` and torch's DataLoader: `num_workers`, `collate_fn`, `shuffle`, `seed` ...

    Raises:
        TrainerError: an argument cannot be used; the message names every problem.
    """

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
        overlap: bool = False,
        seeding: bool = True,
        device: torch.device | str | None = None,
        **loading: Any,
    ) -> None:
        _validate(
            epochs=epochs, commit_every=commit_every, clip_norm=clip_norm, precision=precision, optimizer=optimizer
        )
        horovod_patches.init()
        self._device = torch.device(device) if device is not None else _default_device()
        self._model = model.to(self._device)
        self._optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        self._loss, self._data, self._epochs = loss, data, epochs
        self._batch_options = {
            **loading,
            "batch_size": batch_size,
            "global_batch_size": global_batch_size,
            "micro_batch_size": micro_batch_size,
        }
        own_size = data.batch_size if isinstance(data, DataLoader) else None
        self._evaluation_batch = micro_batch_size or batch_size or global_batch_size or own_size or 1
        self._evaluation, self._measure = evaluation, measure or (lambda model, batch: {"loss": loss(model, batch)})
        self._scheduler = scheduler(self._optimizer) if scheduler is not None else None
        self._mixed_precision = MixedPrecision(Precision(precision), device=self._device, clip_norm=clip_norm)
        self._commit_every = commit_every
        self._tensorboard = TensorBoardWriter(os.environ.get(ENV_TENSORBOARD) or tensorboard)
        self._progress = ProgressLog()
        self._result: dict[str, float] = {}
        self.state = self._make_state(checkpoint, overlap=overlap, seeding=seeding)

    def _make_state(self, checkpoint: str | None, *, overlap: bool, seeding: bool) -> State:
        objects: dict[str, Any] = {"scheduler": self._scheduler, "scaler": self._mixed_precision.scaler}
        return State(
            model=self._model,
            optimizer=self._optimizer,
            checkpoint=checkpoint,
            overlap=overlap,
            seeding=seeding,
            **{name: value for name, value in objects.items() if value is not None},
        )

    def fit(self) -> FitOutcome:
        """Train until all epochs are done. Returns on every worker of the last world; other workers exit in it.

        Returns:
            The number of commits and the result of the last evaluation.
        """
        try:
            run(self._train)(self.state)
        finally:
            self._tensorboard.close()
        return FitOutcome(steps=self.state.step_count, evaluation=self._result)

    def _train(self, state: State) -> None:
        self._tensorboard.close()
        for state.epoch in state.remaining_epochs(self._epochs):
            self._train_epoch(state)
            # Evaluated before the commit that ends the epoch: after an interruption, training comes back to this place.
            if self._evaluation is not None:
                self._evaluate(state)
            if self._scheduler is not None:
                self._scheduler.step()
            state.commit()

    def _train_epoch(self, state: State) -> None:
        self._model.train()
        loss: torch.Tensor | None = None
        steps = 0
        for batch in state.batches(self._data, **self._batch_options):
            batch_loss = self._backward(batch, state.weight)
            loss = batch_loss if loss is None else loss + batch_loss
            self._progress.count(samples_in(batch) * hvd.size())
            if state.accumulating:
                continue
            self._mixed_precision.step(self._model, self._optimizer)
            self._log_progress(state, loss)
            steps += 1
            if steps == self._commit_every:
                state.commit(loss=loss)
                steps = 0
            loss = None

    def _backward(self, batch: Any, weight: float) -> torch.Tensor:
        with self._mixed_precision.autocast():
            loss = self._loss(self._model, self._to_device(batch))
        if weight != 1.0:
            loss = loss * weight
        self._mixed_precision.backward(loss)
        return loss.detach()

    def _log_progress(self, state: State, loss: torch.Tensor) -> None:
        """Write a progress line if one is due. Only here is the loss copied from the device."""
        if hvd.rank() == 0 and self._progress.due():
            values = {"loss": float(loss), "learning_rate": self._optimizer.param_groups[0]["lr"]}
            written = self._progress.write(
                epoch=state.epoch, epochs=self._epochs, step=state.step_count, size=hvd.size(), values=values
            )
            self._tensorboard.write(state.step_count, {f"train/{name}": value for name, value in written.items()})

    def _evaluate(self, state: State) -> None:
        collate = {
            name: self._batch_options[name] for name in ("collate_fn", "num_workers") if name in self._batch_options
        }
        with self._mixed_precision.autocast():
            self._result = evaluate(
                self._model,
                self._measure,
                self._evaluation,
                batch_size=self._evaluation_batch,
                to_device=self._to_device,
                **collate,
            )
        if hvd.rank() == 0:
            self._progress.write(
                epoch=state.epoch, epochs=self._epochs, step=state.step_count, size=hvd.size(), values=self._result
            )
            self._tensorboard.write(state.step_count, {f"evaluation/{name}": v for name, v in self._result.items()})

    def _to_device(self, batch: Any) -> Any:
        if self._device.type == "cpu":
            return batch
        if isinstance(batch, torch.Tensor):
            return batch.to(self._device, non_blocking=True)
        if isinstance(batch, Mapping):
            return {name: self._to_device(value) for name, value in batch.items()}
        if isinstance(batch, list | tuple):
            return tuple(self._to_device(value) for value in batch)
        return batch


def _validate(
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
        problems.append(f"precision: {precision!r} is not one of {', '.join(Precision)}")
    if hasattr(optimizer, "skip_synchronize"):
        problems.append("optimizer: it is already wrapped by hvd.DistributedOptimizer: give the plain one")
    if problems:
        raise TrainerError("Trainer: " + "; ".join(problems))


def _default_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank())
    return torch.device("cuda", hvd.local_rank())
