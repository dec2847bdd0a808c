"""Hugging Face's datasets, map-style or with --streaming. See docs/loaders.md."""

import argparse

import datasets
import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--streaming", action="store_true")
args = parser.parse_args()

elastic.init()
torch.manual_seed(0)
digits = load_digits()
data = datasets.Dataset.from_dict({"image": digits.images.reshape(-1, 64) / 16, "label": digits.target})
if args.streaming:
    # A seed makes the order the same on all workers, and another one in each epoch. No split_dataset_by_node: batches()
    # divides the rows itself.
    data = data.to_iterable_dataset(num_shards=8).shuffle(seed=0, buffer_size=256)
data = data.with_format("torch")

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch in state.batches(data, global_batch_size=64):
            outcome = model(batch["image"].float())
            optimizer.zero_grad()
            (nn.functional.cross_entropy(outcome, batch["label"]) * state.weight).backward()
            optimizer.step()
            state.accuracy = (outcome.argmax(1) == batch["label"]).float().mean().item()
            state.commit()


state = elastic.State(model=model, optimizer=optimizer, accuracy=0.0)
train(state)
if hvd.rank() == 0:
    print(f"accuracy {state.accuracy:.3f} in the last step")
