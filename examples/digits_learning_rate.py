"""Train a small classifier on scikit-learn's handwritten digits with a learning rate that follows the world size.

Every worker takes 64 samples a step, so more workers take larger steps, and the rate grows with them (Goyal et al.
2017): 0.05 for one worker, 0.15 for three. It rises over 20 steps after workers were added, and falls at once.
"""

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import hvd_elastic as elastic


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

elastic.init()
train_data, test_data = read_data()
model = build_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@elastic.run
def train(state):
    state.scale_learning_rate("linear", warmup_steps=20)
    for state.epoch in state.remaining_epochs(args.epochs):
        for images, labels in state.batches(train_data, batch_size=64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            state.commit()
        rate = f"learning rate x{state.learning_rate_factor:.2f}"
        print(f"{rate}, accuracy {accuracy(model, test_data):.3f}")


train(elastic.State(model=model, optimizer=optimizer, epoch=0))
