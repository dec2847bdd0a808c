"""The training that the bridges of docs/libraries.md do, by hand and undisturbed: what theirs is compared with."""

import numpy as np
import torch

from hvd_elastic.trainer.data.sampler import SampleOrder

DIGITS, BATCH = 1797, 64


def by_hand(epochs: int) -> list[torch.Tensor]:
    """The parameters after so many epochs in plain PyTorch."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        order = torch.from_numpy(SampleOrder(DIGITS, seed=0, epoch=epoch, shuffle=True).at(np.arange(DIGITS)))
        for chosen in order.split(BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return list(model.state_dict().values())


def close(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in zip(left, right, strict=True))
