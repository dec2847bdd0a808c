"""The digits of examples/digits_elastic.py by torch.distributed, as the pods of a PyTorchJob train: under torchrun."""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--result", type=Path, default=Path("/output/result.json"))
args = parser.parse_args()

dist.init_process_group("gloo")
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
whole = TensorDataset(images, torch.tensor(digits.target))
train_data, test_data = random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
sampler: DistributedSampler[int] = DistributedSampler(train_data)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for inputs, labels in DataLoader(train_data, batch_size=32, sampler=sampler):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

if dist.get_rank() == 0:
    inputs, labels = next(iter(DataLoader(test_data, batch_size=len(test_data))))
    with torch.no_grad():
        accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    args.result.write_text(json.dumps({"size": dist.get_world_size(), "accuracy": accuracy}))
dist.destroy_process_group()
