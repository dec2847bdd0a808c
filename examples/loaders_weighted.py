"""A sampler of torch: a class that is rare is drawn as often as the others. See docs/loaders.md."""

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset, WeightedRandomSampler

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

elastic.init()
torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target)
kept = (labels != 8) | (torch.arange(len(labels)) % 10 == 0)  # few eights
train_data = TensorDataset(images[kept], labels[kept])

# As many draws as samples, with replacement: an index that is drawn twice is trained twice.
weights = 1.0 / torch.bincount(labels[kept])[labels[kept]]
sampler = WeightedRandomSampler(weights.tolist(), num_samples=len(train_data))

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch, target in state.batches(train_data, sampler=sampler, global_batch_size=64):
            optimizer.zero_grad()
            (nn.functional.cross_entropy(model(batch), target) * state.weight).backward()
            optimizer.step()
            state.commit()


train(elastic.State(model=model, optimizer=optimizer))
if hvd.rank() == 0:
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float()
    print(f"accuracy {right.mean().item():.3f}, of the rare class {right[labels == 8].mean().item():.3f}")
