"""paced.py as Horovod's own documentation would write it: its State, its `run`, of hvd_elastic the data alone."""

import argparse
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from step_log import StepLog
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hvd_elastic.local.demo.demo_data import read_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pace", type=float, default=0.05, help="seconds that each step takes at least")
parser.add_argument("--stop", type=Path, default=Path("/output/stop"), help="training ends once it is there")
parser.add_argument("--events", type=Path, default=Path("/output/events"))
parser.add_argument("--samples", type=Path, help="folder in which each step's samples are noted")
args = parser.parse_args()

hvd.init()
images, labels = read_digits()
dataset = TensorDataset(torch.tensor(images).flatten(1), torch.tensor(labels), torch.arange(len(labels)))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True)
log = StepLog(args.events)


@hvd.elastic.run  # type: ignore[untyped-decorator]
def train(state: hvd.elastic.TorchState) -> None:
    while not state.over:
        for number, (inputs, labels, samples) in enumerate(DataLoader(dataset, batch_size=20, sampler=sampler)):
            step = state.step + 1
            log.samples(samples.tolist(), rank=hvd.rank(), size=hvd.size(), step=step, epoch=state.epoch)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            time.sleep(args.pace)
            state.sampler.record_batch(number, 20)
            state.step += 1
            log.step(rank=hvd.rank(), size=hvd.size(), step=state.step)
            state.commit()
        state.over = hvd.broadcast_object(args.stop.exists(), root_rank=0, name="stop")
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0, over=False))
