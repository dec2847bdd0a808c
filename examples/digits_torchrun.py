"""Train a small classifier on scikit-learn's handwritten digits: DistributedDataParallel, for torchrun."""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def read_data():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = TensorDataset(images, torch.tensor(digits.target))
    return random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(0))


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10)
    )


def accuracy(model, data):
    images, labels = next(iter(DataLoader(data, batch_size=len(data))))
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--snapshot", type=Path, default="snapshot.pt")
args = parser.parse_args()

torch.distributed.init_process_group("gloo")
train_data, test_data = read_data()
model = DistributedDataParallel(build_model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
first_epoch = 0
if args.snapshot.exists():
    snapshot = torch.load(args.snapshot)
    model.module.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    first_epoch = snapshot["epoch"]


def save(epoch):
    if torch.distributed.get_rank() == 0:
        snapshot = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        new = args.snapshot.with_suffix(".new")
        torch.save(snapshot, new)
        new.replace(args.snapshot)


def train():
    sampler = DistributedSampler(train_data)
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train_data, batch_size=64, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        save(epoch + 1)
        print(f"epoch {epoch} accuracy {accuracy(model.module, test_data):.3f}")


train()
