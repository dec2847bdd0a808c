"""A script for torch.distributed as a researcher writes it: DistributedDataParallel of several buckets, and no Horovod.

What tests vary comes from the environment. For the tests it also logs, per step, which samples it takes, before others
may count them as trained on, and the loss over the whole step.
"""

import json
import os
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

ENV = os.environ
LENGTH = int(ENV["LENGTH"])

elastic.init()
distributed.init_process_group("gloo")  # as a library does, which finds the elastic one
torch.manual_seed(0)
dataset = TensorDataset(torch.arange(LENGTH), torch.randn(LENGTH, 16), torch.randn(LENGTH, 1))
layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
torch.manual_seed(os.getpid())
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(16, 1)), bucket_cap_mb=0.002)
torch.manual_seed(1)
for weights in model.parameters():
    if "ALIKE" in ENV:  # to be compared to another run, the first weights of which are others' otherwise
        nn.init.normal_(weights, std=0.2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
state = elastic.State(model=model, optimizer=optimizer)
log = (Path(ENV["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(int(ENV["EPOCHS"])):
        taken: list[int] = []
        loss = torch.zeros(())
        for numbers, x, y in state.batches(dataset, global_batch_size=50, micro_batch_size=int(ENV["MICRO"]), seed=1):
            error = nn.functional.mse_loss(model(x), y) * state.weight
            error.backward()  # type: ignore[no-untyped-call]
            loss += error.detach()
            taken += numbers.tolist() if state.weight else []
            if state.accumulating:
                continue
            place = {"step": state.step_count + 1, "size": distributed.get_world_size(), "epoch": state.epoch}
            log.write(json.dumps({"took": {**place, "time": time.time(), "samples": taken}}) + "\n")
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(float(ENV["STEP_SECONDS"]))
            assert (ENV["RANK"], ENV["WORLD_SIZE"]) == (str(distributed.get_rank()), str(distributed.get_world_size()))
            distributed.all_reduce(loss)
            state.commit(loss=(loss / distributed.get_world_size()).item())
            taken, loss = [], torch.zeros(())
    total = sum(weights.detach().double().sum().item() for weights in model.parameters())
    log.write(json.dumps({"end": {"sum": total, "rank": distributed.get_rank()}}) + "\n")


if __name__ == "__main__":
    train(state)
