"""paced.py with torchft, as its train_ddp.py is written: a replica group on each host, quorum and commit each step.

torchft's sampler has a shard for each group that there may be; its documentation calls it lossy. Which batch comes
next follows from the number of the step, which a group that comes gets with the weights: so all groups are always in
the same epoch, and a batch whose step was not committed is used again. train_ddp.py leaves both to its user.
"""

import argparse
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from step_log import StepLog
from torch import nn
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo
from torchft.checkpointing.pg_transport import PGTransport

from hvd_elastic.local.demo.demo_data import read_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pace", type=float, default=0.05, help="seconds that each step takes at least")
parser.add_argument("--batch", type=int, default=20, help="samples of each group")
parser.add_argument("--events", type=Path, required=True)
args = parser.parse_args()

GROUP, GROUPS = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
torch.set_num_threads(1)
images, labels = read_digits()
pixels, wanted = torch.tensor(images).flatten(1), torch.tensor(labels)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
process_group = ProcessGroupGloo(timeout=timedelta(seconds=5))


def load_state_dict(state: dict[str, Any]) -> None:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optim"])


def state_dict() -> dict[str, Any]:
    return {"model": model.state_dict(), "optim": optimizer.state_dict()}


manager = Manager(
    pg=process_group,
    min_replica_size=1,
    load_state_dict=load_state_dict,
    state_dict=state_dict,
    replica_id=f"group_{GROUP}",
    timeout=timedelta(seconds=30),
    checkpoint_transport=PGTransport(process_group, timeout=timedelta(seconds=10), device="cpu"),
)
model = DistributedDataParallel(manager, net)
optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1))
sampler = DistributedSampler(
    range(len(labels)), replica_rank=GROUP, num_replica_groups=GROUPS, group_rank=0, num_replicas=1
)
batches = -(-len(sampler) // args.batch)
log = StepLog(args.events)

while True:
    epoch, batch = divmod(manager.current_step(), batches)
    sampler.set_epoch(epoch)
    samples = list(sampler)[batch * args.batch : (batch + 1) * args.batch]
    optimizer.zero_grad()
    time.sleep(args.pace)  # stands for the GPU's work, while the quorum is asked for
    nn.functional.cross_entropy(model(pixels[samples]), wanted[samples]).backward()  # type: ignore[no-untyped-call]
    if manager.is_participating():
        rank, size, step = manager.participating_rank(), manager.num_participants(), manager.current_step() + 1
        log.samples(samples, rank=rank, size=size, step=step, epoch=epoch)
        log.step(rank=rank, size=size, step=step)
    optimizer.step()
