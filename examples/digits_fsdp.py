"""Train a small classifier on scikit-learn's handwritten digits: fully_shard (FSDP2), elastic."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset, random_split

import hvd_elastic as elastic


def read_data():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = TensorDataset(images, torch.tensor(digits.target))
    return random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(0))


def build_model():
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]
    return nn.Sequential(nn.Flatten(), *blocks, nn.Linear(64, 10))


def accuracy(model, data):
    images, labels = next(iter(DataLoader(data, batch_size=len(data))))
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

elastic.init()
train_data, test_data = read_data()
model = build_model()
for block in model[1:-1]:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for images, labels in state.batches(train_data, batch_size=64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            (loss * state.weight).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            state.commit()
        print(f"epoch {state.epoch} accuracy {accuracy(model, test_data):.3f}")


train(elastic.State(model=model, optimizer=optimizer, epoch=0))
