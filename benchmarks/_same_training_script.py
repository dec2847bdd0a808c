"""The training of `benchmarks.same_training`: digits with a global batch, evaluated after each epoch."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import hvd_elastic as elastic
from hvd_elastic.local.demo.demo_data import digits
from hvd_elastic.local.demo.demo_model import build_model
from hvd_elastic.mpijob.contract import ENV_OUTPUT
from hvd_elastic.trainer.collectives.this_world import WORLD
from testbed.local.either_engine import averaging

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--seed", type=int, required=True, help="of the first weights and of the order of the samples")
parser.add_argument("--dtype", choices=("float32", "float64"), required=True)
parser.add_argument("--step-seconds", type=float, default=0.0, help="minimum time of a step: stands for a GPU's work")
args = parser.parse_args()

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(getattr(torch, args.dtype))

images = digits()
pixels, labels = (
    torch.from_numpy(images.train_images).to(torch.get_default_dtype()),
    torch.from_numpy(images.train_labels),
)
data = torch.utils.data.TensorDataset(pixels, labels)
test_pixels = torch.from_numpy(images.test_images).to(torch.get_default_dtype())
test_labels = torch.from_numpy(images.test_labels)
output = Path(os.environ[ENV_OUTPUT])

elastic.init()
model = build_model(images.train_images.shape[-1], seed=args.seed)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
called, optimizer = averaging(model, optimizer)


def evaluated() -> dict[str, float]:
    """Mean loss over all training samples and accuracy over all test samples, of the weights as they are."""
    with torch.no_grad():
        loss = functional.cross_entropy(model(pixels), labels)
        right = (model(test_pixels).argmax(1) == test_labels).double().mean()
    return {"loss": float(loss), "accuracy": float(right)}


@elastic.run
def train(state: Any) -> None:
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch, wanted in state.batches(data, batch_size=args.batch_size, seed=args.seed):
            began = time.monotonic()
            optimizer.zero_grad()
            (functional.cross_entropy(called(batch), wanted) * state.weight).backward()
            optimizer.step()
            time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
            state.commit()
        if WORLD.rank() == 0:
            with (output / "epochs.jsonl").open("a") as lines:
                lines.write(json.dumps({"epoch": state.epoch, "size": WORLD.size(), **evaluated()}) + "\n")


train(elastic.State(model=model, optimizer=optimizer, epoch=0))
if WORLD.rank() == 0:
    torch.save(model.state_dict(), output / "weights.pt")
