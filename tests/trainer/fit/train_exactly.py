"""A job with a Trainer whose numbers are exact at any world size, so that runs can be compared to the last bit.

The gradient is a mean of integers, and each step a sum of powers of two: no order of additions rounds anything. The
weights pass their target on a straight line, so the best evaluation is one in the middle.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import hvd_elastic as elastic
from hvd_elastic.trainer.fit.trainer import FIT_PROGRESS

ENV = os.environ
LENGTH, GLOBAL_BATCH = 256, 32
LOG = Path(ENV.get("TEST_LOG", "."))


class Line(torch.nn.Module):
    """Moves on a straight line. Takes time in each step until the file `hurry` is there, so that a test can resize."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not Path("hurry").exists():
            time.sleep(float(ENV.get("STEP_SECONDS", "0")))
        return (self.weight * x).sum(-1)


def data() -> TensorDataset:
    return TensorDataset(-torch.randint(1, 8, (LENGTH, 4), generator=torch.Generator().manual_seed(0)).float())


def measure(model: torch.nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    weight = next(model.parameters())
    return {"distance": (weight - 2.0).square().mean(), "first": weight[0]}


def write(moment: elastic.Moment) -> elastic.Stop | None:
    """Keep every moment, and act as the test wants."""
    kept = {"kind": moment.kind, "step": moment.step, "epoch": moment.epoch, "size": moment.size}
    kept |= {"metrics": dict(moment.metrics), "is_best": moment.is_best, "why": moment.why}
    kept |= {"best": moment.best.step if moment.best is not None else None}
    with (LOG / f"{os.getpid()}-moments.jsonl").open("a") as file:
        file.write(json.dumps({"told": kept, "time": time.time()}) + "\n")
    if moment.kind == "step" and str(moment.step) == ENV.get("DIE_AT"):
        os._exit(9)
    if moment.kind == "step" and str(moment.step) == ENV.get("FAIL_AT"):
        raise ValueError("a mistake in a callback")
    if moment.kind == "step" and str(moment.step) == ENV.get("STOP_AT"):
        return elastic.Stop("the test wants it")
    return None


def main() -> None:
    torch.manual_seed(0)
    model = Line()
    max_steps = ENV.get("MAX_STEPS")
    trainer = elastic.Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=2.0**-8),
        loss=lambda model, batch: model(batch[0]).mean(),
        data=data(),
        epochs=int(ENV.get("EPOCHS", "100")),
        max_steps=int(max_steps) if max_steps else None,
        global_batch_size=GLOBAL_BATCH,
        evaluation=elastic.Evaluation(
            data=data(),
            every=int(ENV.get("EVALUATE_EVERY", "5")) or None,
            measure=measure,
            early_stop=elastic.EarlyStop(metric="distance", patience=int(ENV.get("PATIENCE", "4"))),
            keep_best=elastic.KeepBest(metric="distance", url=f"file://{ENV['KEEP']}"),
        ),
        checkpointing=elastic.Checkpointing(commit_every=int(ENV.get("COMMIT_EVERY", "1"))),
        reporting=elastic.Reporting(callbacks=[write], log_every=3, progress=False),
        seed=1,
    )
    if "EARLIER_VERSION" in ENV:  # whose state had no such name
        objects = trainer.state._present.objects
        objects._names = tuple(name for name in objects._names if name != FIT_PROGRESS)
    outcome = trainer.fit()
    best = outcome.best
    results = {
        "time": time.time(),
        "steps": outcome.steps,
        "why": outcome.why,
        "evaluation": dict(outcome.evaluation),
        "best": [best.step, best.epoch, best.value, best.url] if best is not None else None,
        "weights": model.weight.tolist(),
    }
    with (LOG / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"result": results}) + "\n")


if __name__ == "__main__":
    main()
