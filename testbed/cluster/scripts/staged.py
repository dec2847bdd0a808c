"""The digits from a folder of shards, with `elastic.Trainer` at a steady pace, until a file says stop."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, help="of .npz files with `images` [N, 8, 8] and `labels` [N]")
parser.add_argument("--pace", type=float, default=0.05, help="seconds that each step takes at least")
parser.add_argument("--stop", type=Path, default=Path("/output/stop"))
args = parser.parse_args()

shards = [np.load(file) for file in sorted(args.folder.glob("*.npz"))]
images = np.concatenate([shard["images"] for shard in shards])
labels = np.concatenate([shard["labels"] for shard in shards])


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    time.sleep(args.pace)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def watch_the_file(moment: elastic.Moment) -> elastic.Stop | None:
    return elastic.Stop("the file says so") if moment.kind == "step" and args.stop.exists() else None


torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
elastic.Trainer(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    loss=loss,
    data=TensorDataset(torch.tensor(images), torch.tensor(labels)),
    epochs=1000,
    global_batch_size=60,
    reporting=elastic.Reporting(callbacks=[watch_the_file], log_every=5),
).fit()
