"""Train a classifier on handwritten digits with `elastic.Trainer` and all that it has: docs/trainer.md explains it.

Half precision, accumulation, clipping, a warm-up, an evaluation in mid-epoch, the best model, an early stop, callbacks.
"""

import argparse
import math
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset, random_split

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--max-steps", type=int, metavar="STEPS", help="by default: until all epochs are done")
parser.add_argument("--evaluate-every", type=int, default=10, metavar="STEPS")
parser.add_argument("--patience", type=int, default=8, help="evaluations without a better accuracy, until it stops")
parser.add_argument("--keep", default=f"file://{Path.cwd()}/digits", metavar="URL", help="where the best model is kept")
parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so much time in one process")
parser.add_argument("--compile", action="store_true", help="needs a C++ compiler")
args = parser.parse_args()

torch.manual_seed(0)  # the model's first weights, and the job's seed
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
whole = TensorDataset(images, torch.tensor(digits.target))
train_data, test_data = random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(0))

# An epoch has as many steps with one worker as with ten: what follows from their number needs no change at a resize.
steps_per_epoch = math.ceil(len(train_data) / 64)
total_steps = args.max_steps or args.epochs * steps_per_epoch


def rate(step):
    """The factor on the learning rate: a linear warm-up, then half a cosine."""
    warm_up = steps_per_epoch // 2
    return (step + 1) / warm_up if step < warm_up else 0.5 * (1 + math.cos(math.pi * step / total_steps))


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def measure(model, batch):
    scores = model(batch[0])
    right = (scores.argmax(1) == batch[1]).float().mean()
    return {"loss": nn.functional.cross_entropy(scores, batch[1]), "accuracy": right}


def tell(moment):
    """Print what is new. Called on rank 0 alone, when it is committed: no resize makes it print a line twice."""
    if moment.kind == "resume":
        print(f"step {moment.step}: {moment.size} workers", flush=True)
    elif moment.kind == "evaluation" and moment.is_best:
        print(f"step {moment.step}: accuracy {moment.metrics['accuracy']:.3f} in {moment.best.url}", flush=True)
    elif moment.kind == "end":
        best = f", best accuracy {moment.best.value:.3f}" if moment.best else ""
        print(f"{moment.why}: {moment.step} of {total_steps} steps{best}", flush=True)


def watch_the_clock(moment):
    """Stop all workers when the time of rank 0's process is over."""
    late = moment.kind != "end" and time.monotonic() > deadline
    return elastic.Stop(f"{args.minutes} minutes are over") if late else None


deadline = time.monotonic() + 60 * args.minutes
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 10)
)
trainer = elastic.Trainer(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    loss=loss,
    data=train_data,
    epochs=args.epochs,
    max_steps=args.max_steps,
    global_batch_size=64,
    micro_batch_size=16,
    scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
    schedule_per="step",
    evaluation=elastic.Evaluation(
        data=test_data,
        every=args.evaluate_every,
        measure=measure,
        early_stop=elastic.EarlyStop(metric="accuracy", mode="max", patience=args.patience),
        keep_best=elastic.KeepBest(metric="accuracy", mode="max", url=args.keep),
    ),
    computation=elastic.Computation(precision="bf16", clip_norm=1.0, torch_compile=args.compile),
    reporting=elastic.Reporting(callbacks=[tell, watch_the_clock], log_every=10),
)
trainer.fit()
