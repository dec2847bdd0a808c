"""paced.py as PyTorch's own documentation would write it: torchrun, DDP, and a checkpoint on the shared volume."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from step_log import StepLog
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hvd_elastic.local.demo.demo_data import read_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pace", type=float, default=0.05, help="seconds that each step takes at least")
parser.add_argument("--stop", type=Path, default=Path("/output/stop"), help="training ends once it is there")
parser.add_argument("--events", type=Path, default=Path("/output/events"))
parser.add_argument("--checkpoint", type=Path, default=Path("/output/checkpoint.pt"))
parser.add_argument("--checkpoint-steps", type=int, default=10)
parser.add_argument("--samples", type=Path, help="folder in which each step's samples are noted")
args = parser.parse_args()

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
images, labels = read_digits()
dataset = TensorDataset(torch.tensor(images).flatten(1), torch.tensor(labels), torch.arange(len(labels)))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
epoch = step = 0
if args.checkpoint.exists():
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    epoch, step = saved["epoch"], saved["step"]
parallel = DistributedDataParallel(model)
sampler: DistributedSampler[int] = DistributedSampler(dataset)
log = StepLog(args.events)


def save() -> None:
    """Replace the checkpoint as a whole: a process may be killed at any time."""
    new = args.checkpoint.with_suffix(".new")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
    torch.save(state, new)
    new.replace(args.checkpoint)


over = torch.zeros(1)
while not over.item():
    sampler.set_epoch(epoch)
    for inputs, wanted, samples in DataLoader(dataset, batch_size=20, sampler=sampler):
        log.samples(samples.tolist(), rank=rank, size=size, step=step + 1, epoch=epoch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(inputs), wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        time.sleep(args.pace)
        step += 1
        log.step(rank=rank, size=size, step=step)
        if rank == 0 and step % args.checkpoint_steps == 0:
            save()
    epoch += 1
    over.fill_(float(args.stop.exists()))
    dist.broadcast(over, src=0)
dist.destroy_process_group()
