"""The demo's training script: what a researcher would write with this package."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import hvd_elastic as elastic
from hvd_elastic.local.demo.demo_model import accuracy, build_model, read_images, training_set
from hvd_elastic.mpijob.contract import ENV_ENGINE, ENV_OUTPUT, Engine

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--step-seconds", type=float, default=0.0, help="minimum time of a step: stands for a GPU's work")
args = parser.parse_args()

images = read_images(args.data)
data = training_set(images)
elastic.init()
model = build_model(images.train_images.shape[-1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if os.environ.get(ENV_ENGINE) == Engine.TORCH:
    from torch.distributed import get_rank as rank
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model)
else:
    import horovod.torch as hvd

    rank = hvd.rank
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@elastic.run
def train(state: Any) -> None:
    for state.epoch in state.remaining_epochs(args.epochs):
        for pixels, labels, indices in state.batches(data, batch_size=args.batch_size):
            began = time.monotonic()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(pixels), labels)
            (loss * state.weight).backward()
            optimizer.step()
            time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
            state.commit(loss=loss.item(), indices=indices.tolist())


train(elastic.State(model=model, optimizer=optimizer, epoch=0))
if rank() == 0:
    result = {"accuracy": accuracy(model, images)}
    Path(os.environ[ENV_OUTPUT], "result.json").write_text(json.dumps(result))
