"""Hugging Face's Accelerate over torch.distributed (`--engine torch`), elastic. See docs/libraries.md."""

import argparse

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--mixed-precision", default="no", choices=["no", "bf16"])
args = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

elastic.init()
accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=args.mixed_precision)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for images, labels in state.batches(loader, global_batch_size=64):
            optimizer.zero_grad()
            outcome = model(images)
            accelerator.backward(nn.functional.cross_entropy(outcome, labels) * state.weight)
            accelerator.clip_grad_norm_(model.parameters(), 100.0)
            optimizer.step()
            right = (outcome.argmax(1) == labels).float().mean()
            state.accuracy = accelerator.reduce(right, "mean").item()
            state.commit()


state = elastic.State(model=model, optimizer=optimizer, accuracy=0.0)
train(state)
if accelerator.is_main_process:
    print(f"accuracy {state.accuracy:.3f} in the last step")
