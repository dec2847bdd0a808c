"""A StatefulDataLoader of torchdata, as it stands in the script, given to `state.batches`. See docs/loaders.md."""

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

elastic.init()
torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target)
loader = StatefulDataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True, num_workers=1)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch, target in state.batches(loader):  # the position is the state's: the loader's own is not used
            optimizer.zero_grad()
            (nn.functional.cross_entropy(model(batch), target) * state.weight).backward()
            optimizer.step()
            state.commit()


train(elastic.State(model=model, optimizer=optimizer))  # without the loader
if hvd.rank() == 0:
    with torch.no_grad():
        print(f"accuracy {(model(images).argmax(1) == labels).float().mean().item():.3f}")
