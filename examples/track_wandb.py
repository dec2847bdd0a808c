"""The Trainer's figures in Weights & Biases: one run, over resizes and restarts. See docs/libraries.md."""

import argparse

import torch
import wandb
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()


def track(moment):
    """Told on rank 0 alone. After a resize that may be another process, which resumes the run by its id."""
    if moment.kind == "resume" and wandb.run is None:
        wandb.init(project="digits", id="digits-1", resume="allow")
        wandb.define_metric("*", step_metric="step")  # W&B's own step cannot go back, as ours does with a checkpoint
    elif moment.kind in ("step", "evaluation"):
        wandb.log({"step": moment.step, **{f"{moment.kind}/{name}": value for name, value in moment.metrics.items()}})
    elif moment.kind == "end":
        wandb.finish()


torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
trainer = elastic.Trainer(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
    data=data,
    epochs=args.epochs,
    global_batch_size=64,
    evaluation=elastic.Evaluation(
        data=data,
        measure=lambda model, batch: {"accuracy": (model(batch[0]).argmax(1) == batch[1]).float().mean()},
    ),
    reporting=elastic.Reporting(callbacks=[track], log_every=1),
)
outcome = trainer.fit()
print(f"accuracy {outcome.evaluation['accuracy']:.3f} after {outcome.steps} steps")
