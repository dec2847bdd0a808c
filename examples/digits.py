"""Train a small classifier on scikit-learn's handwritten digits: plain PyTorch, one process."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


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
args = parser.parse_args()

train_data, test_data = read_data()
model = build_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train():
    for _ in range(args.epochs):
        for images, labels in DataLoader(train_data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"accuracy {accuracy(model, test_data):.3f}")


train()
