"""A training script as a researcher writes it, on scikit-learn's digits; what tests vary comes from the environment.

For the tests it also logs, per step, which samples it took and the loss over the whole step.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import hvd_elastic as elastic
from hvd_elastic.local.demo.demo_data import read_digits
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from testbed.local.either_engine import averaging

ENV = os.environ
elastic.init()
torch.manual_seed(0)
images, labels = read_digits()
length = int(ENV.get("LENGTH", len(labels)))
dataset = TensorDataset(
    torch.arange(length),
    torch.tensor(images[:length]).flatten(1),
    torch.tensor(labels[:length]),
)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32, momentum=None), torch.nn.Linear(32, 10))
model[1].eval()
options: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
called, optimizer = (
    (model, elastic.ShardedOptimizer(model.parameters(), torch.optim.SGD, **options))
    if "SHARDED" in ENV
    else averaging(model, torch.optim.SGD(model.parameters(), **options))
)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
state = elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, done=[])
log = (Path(ENV["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(int(ENV.get("EPOCHS", "2"))):
        batches = state.batches(dataset, global_batch_size=50, micro_batch_size=int(ENV.get("MICRO", "50")), seed=1)
        taken: list[int] = []
        loss = torch.zeros(())
        for numbers, x, y in batches:
            error = torch.nn.functional.cross_entropy(called(x), y) * state.weight
            error.backward()  # type: ignore[no-untyped-call]
            loss += error.detach()
            taken += numbers.tolist() if state.weight else []
            if state.accumulating:
                continue
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(float(ENV.get("STEP_SECONDS", "0.02")))
            state.commit(taken=taken, loss=WORLD.allreduce(loss, op=ReduceOp.AVERAGE, name="loss").item())
            taken, loss = [], torch.zeros(())
        state.scheduler.step()
        state.done.append(state.epoch)
        log.write(json.dumps({"epoch": state.epoch, "rank": WORLD.rank(), "samples": str(state.samples)}) + "\n")
    total = sum(weights.detach().double().sum().item() for weights in model.parameters())
    digest = {"sum": total, "done": state.done, "rate": optimizer.param_groups[0]["lr"], "rank": WORLD.rank()}
    log.write(json.dumps({"end": digest}) + "\n")


if __name__ == "__main__":
    train(state)
    sys.exit(int(ENV.get("EXIT", "0")))
