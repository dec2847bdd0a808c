"""The digits of examples/digits_elastic.py at a steady pace, until a file says stop: long enough for a scenario.

Over Horovod or torch.distributed, as the job says.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from step_log import StepLog
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic
from hvd_elastic.local.demo.demo_data import read_digits
from hvd_elastic.mpijob.contract import ENV_EVENTS
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.this_world import WORLD

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pace", type=float, default=0.05, help="seconds that each step takes at least")
parser.add_argument(
    "--stop", type=Path, default=Path("/output/stop"), help="training ends with the epoch once it is there"
)
parser.add_argument("--busy", type=float, default=0.0, help="CPU seconds that a step computes for, beside its model")
parser.add_argument("--scales", action="store_true", help="with more workers a step takes less")
parser.add_argument("--build", type=float, default=0.0, help="seconds that the model takes to be built")
parser.add_argument("--epochs", type=int, default=1_000_000, help="at most")
parser.add_argument("--global-batch", type=int, default=60, help="samples of a step")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--log-samples", action="store_true", help="write which samples each step uses")
args = parser.parse_args()

elastic.init()
time.sleep(args.build)
images, labels = read_digits()
dataset = TensorDataset(torch.tensor(images).flatten(1), torch.tensor(labels), torch.arange(len(labels)))
log = StepLog(Path(os.environ[ENV_EVENTS]) if args.log_samples else None)
torch.manual_seed(0)
model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
if IS_TORCH:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model)
else:
    import horovod.torch as hvd

    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def compute(cpu_seconds: float) -> None:
    """Use this thread's CPU for so long: longer by the clock where the CPU is short."""
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        sum(range(1000))


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(args.epochs):
        for inputs, labels, samples in state.batches(dataset, global_batch_size=args.global_batch):
            step = state.step_count + 1
            log.samples(samples.tolist(), rank=WORLD.rank(), size=WORLD.size(), step=step, epoch=state.epoch)
            optimizer.zero_grad()
            compute(args.busy)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            (loss * state.weight).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            time.sleep(args.pace / (WORLD.size() if args.scales else 1))
            state.commit(loss=loss.item())
        if elastic.agree(args.stop.exists()):
            break
    with torch.no_grad():
        accuracy = (model(dataset.tensors[0]).argmax(1) == dataset.tensors[1]).float().mean().item()
    state.log(accuracy=accuracy)
    if WORLD.rank() == 0:
        print(f"steps {state.step_count} accuracy {accuracy:.4f}", flush=True)


train(elastic.State(model=model, optimizer=optimizer, epoch=0))
