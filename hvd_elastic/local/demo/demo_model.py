"""The demo's model and data in torch; the same for the elastic and the stock script."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from hvd_elastic.local.demo.demo_data import Images, digits, idx_folder


def read_images(folder: str | None) -> Images:
    """The IDX files in `folder`, or without one the digits that ship with scikit-learn."""
    return idx_folder(Path(folder)) if folder else digits()


def training_set(images: Images) -> TensorDataset:
    """Samples of (image, label, index). With the index the report counts how often each sample was really seen."""
    count = len(images.train_labels)
    return TensorDataset(
        torch.from_numpy(images.train_images), torch.from_numpy(images.train_labels), torch.arange(count)
    )


def build_model(side: int, *, seed: int = 0) -> nn.Module:
    """A small convolutional network for `side` x `side` pixels and 10 classes, whose weights follow from `seed`."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (side // 2) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def accuracy(model: nn.Module, images: Images) -> float:
    """The share of the test images that the model classifies correctly."""
    with torch.no_grad():
        guesses = model(torch.from_numpy(images.test_images)).argmax(1)
    return float((guesses == torch.from_numpy(images.test_labels)).float().mean())
