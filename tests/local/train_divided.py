"""A script with `fully_shard` as a researcher writes it: block by block, then the root; AdamW, and clipping.

What tests vary comes from the environment. For the tests it also logs, per step, which samples it takes, before others
may count them as trained on, the loss over the whole step, and how many bytes of weights and of the optimizer's state
the rank holds.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

ENV = os.environ
LENGTH = int(ENV["LENGTH"])

elastic.init()
torch.manual_seed(0)
dataset = TensorDataset(torch.arange(LENGTH), torch.randn(LENGTH, 16), torch.randn(LENGTH, 1))
torch.manual_seed(1)
layers = [nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16, momentum=None), nn.Tanh()) for _ in range(3)]
model: Any = nn.Sequential(*layers, nn.Linear(16, 5), nn.Linear(5, 1))
for layer in layers:
    layer[1].eval()
    if "PLAIN" not in ENV:
        fully_shard(layer)
if "PLAIN" not in ENV:
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
state = elastic.State(model=model, optimizer=optimizer)
log = (Path(ENV["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)


def held_bytes() -> int:
    """Of weights and the optimizer's state, on this rank."""
    kept = [*model.parameters(), *(each for values in optimizer.state.values() for each in values.values())]
    return sum((each.to_local() if isinstance(each, DTensor) else each).nbytes for each in kept)


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(int(ENV["EPOCHS"])):
        taken: list[int] = []
        loss = torch.zeros(())
        for numbers, x, y in state.batches(dataset, global_batch_size=50, micro_batch_size=int(ENV["MICRO"]), seed=1):
            if ENV.get("SYNC") == "last":
                model.set_requires_gradient_sync(not state.accumulating)
            error = nn.functional.mse_loss(model(x), y) * state.weight
            error.backward()  # type: ignore[no-untyped-call]
            loss += error.detach()
            taken += numbers.tolist() if state.weight else []
            if state.accumulating:
                continue
            size = distributed.get_world_size()
            place = {"step": state.step_count + 1, "size": size, "epoch": state.epoch, "time": time.time()}
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            log.write(json.dumps({"took": {**place, "samples": taken, "held": held_bytes()}}) + "\n")
            time.sleep(float(ENV["STEP_SECONDS"]))
            distributed.all_reduce(loss)
            state.commit(loss=(loss / size).item())
            taken, loss = [], torch.zeros(())
    total = sum(
        (weights.full_tensor() if isinstance(weights, DTensor) else weights).detach().double().sum().item()
        for weights in model.parameters()
    )
    log.write(json.dumps({"end": {"sum": total, "rank": distributed.get_rank()}}) + "\n")


if __name__ == "__main__":
    train(state)
