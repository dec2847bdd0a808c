"""Lightning Fabric over torch.distributed (`--engine torch`), elastic. See docs/libraries.md."""

import argparse

import torch
from lightning_fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--precision", default="32-true", choices=["32-true", "bf16-mixed"])
args = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

elastic.init()
fabric = Fabric(strategy="ddp", precision=args.precision)
fabric.launch()
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(loader)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for images, labels in state.batches(loader, global_batch_size=64):
            optimizer.zero_grad()
            outcome = model(images)
            fabric.backward(nn.functional.cross_entropy(outcome, labels) * state.weight)
            fabric.clip_gradients(model, optimizer, max_norm=100.0)
            optimizer.step()
            state.accuracy = fabric.all_reduce((outcome.argmax(1) == labels).float().mean()).item()
            state.commit()


state = elastic.State(model=model, optimizer=optimizer, accuracy=0.0)
train(state)
if fabric.is_global_zero:
    print(f"accuracy {state.accuracy:.3f} in the last step")
