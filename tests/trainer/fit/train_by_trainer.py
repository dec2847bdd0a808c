"""A job with a Trainer. Tests set its options by environment variables and read its results from TEST_LOG."""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from hvd_elastic.trainer.fit.trainer import Trainer
from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer

ENV = os.environ
LENGTH = 203
DECAY = {"epoch": 1, "step": 5}
"""Steps of the scheduler after which the rate is halved, by when it steps."""


class Slow(torch.nn.Module):
    """Takes time in each step, so that a test can resize the job, until the file `hurry` is there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not Path("hurry").exists():
            time.sleep(float(ENV.get("STEP_SECONDS", "0")))
        return x


def problem() -> tuple[TensorDataset, torch.nn.Module]:
    torch.manual_seed(0)
    inputs = torch.randn(LENGTH, 4)
    model = torch.nn.Sequential(Slow(), torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return TensorDataset(inputs, inputs @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]])), model


def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def main() -> None:
    data, model = problem()
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9}
    norm, per = ENV.get("CLIP"), ENV.get("SCHEDULE_PER", "epoch")
    trainer = Trainer(
        model,
        ShardedOptimizer(model.parameters(), torch.optim.SGD, **options)
        if "SHARDED" in ENV
        else torch.optim.SGD(model.parameters(), **options),
        loss=loss,
        data=data,
        epochs=int(ENV.get("EPOCHS", "3")),
        global_batch_size=32,
        micro_batch_size=int(ENV.get("MICRO", "32")),
        evaluation=data,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, DECAY[per], 0.5),
        schedule_per=per,
        computation=Computation(
            torch_compile={"backend": ENV["COMPILE"]} if "COMPILE" in ENV else False,
            precision=ENV.get("PRECISION", "full"),
            clip_norm=float(norm) if norm else None,
        ),
        checkpointing=Checkpointing(commit_every=int(ENV.get("COMMIT_EVERY", "1"))),
        seed=1,
    )
    outcome = trainer.fit()
    results = {
        "steps": outcome.steps,
        "why": outcome.why,
        "rate": trainer.state.optimizer.param_groups[0]["lr"],
        "names": list(trainer.state.model.state_dict()),
        "evaluation": dict(outcome.evaluation),
        "weights": torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(),
        "samples": [
            trainer.state.samples.seen,
            trainer.state.samples.padded,
            trainer.state.samples.repeated,
        ],
    }
    (Path(ENV["TEST_LOG"]) / f"{os.getpid()}.jsonl").write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
