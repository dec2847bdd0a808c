"""The same training with Horovod alone, as in its examples: TorchState, ElasticSampler, `hvd.elastic.run`."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from hvd_elastic.local.demo.demo_model import accuracy, build_model, read_images, training_set
from hvd_elastic.mpijob.contract import ENV_EVENTS, ENV_OUTPUT

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4, help="workers among which the batch is divided, once")
parser.add_argument("--step-seconds", type=float, default=0.0)
args = parser.parse_args()
share = args.batch_size // args.workers

images = read_images(args.data)
data = training_set(images)
hvd.init()
model = build_model(images.train_images.shape[-1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(data, shuffle=True)
events = Path(os.environ[ENV_EVENTS], f"stock-{os.getpid()}.jsonl").open("a", buffering=1)


@hvd.elastic.run
def train(state: Any) -> None:
    while state.epoch < args.epochs:
        for number, (pixels, labels, indices) in enumerate(DataLoader(data, batch_size=share, sampler=sampler)):
            began = time.monotonic()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(pixels), labels)
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
            state.sampler.record_batch(number, share)
            state.step += 1
            event = {"time": time.time(), "event": "step", "rank": hvd.rank(), "size": hvd.size(), "step": state.step}
            event |= {"epoch": state.epoch, "loss": loss.item(), "indices": indices.tolist()}
            events.write(json.dumps(event) + "\n")
            state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0))
if hvd.rank() == 0:
    result = {"accuracy": accuracy(model, images)}
    Path(os.environ[ENV_OUTPUT], "result.json").write_text(json.dumps(result))
