"""A script for torch.distributed as a researcher writes it: DistributedDataParallel of several buckets, and no Horovod.

What tests vary comes from the environment. For the tests it also logs, per step, which samples it takes, before others
may count them as trained on, and the loss over the whole step.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

ENV = os.environ
LENGTH = int(ENV["LENGTH"])

elastic.init()
distributed.init_process_group("gloo")  # as a library does, which finds the elastic one
torch.manual_seed(0)
dataset = TensorDataset(torch.arange(LENGTH), torch.randn(LENGTH, 16), torch.randn(LENGTH, 1))


class Gated(nn.Module):
    """Has weights that few samples use, so that some batches use none of them."""

    def __init__(self, always: nn.Module) -> None:
        super().__init__()
        self.always, self.seldom = always, nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outcome: torch.Tensor = self.always(x)
        chosen = x[:, :1] > 2.0
        return outcome + chosen * self.seldom(x) if chosen.any() else outcome


KIND = ENV.get("KIND", "")
OPTIONS: dict[str, Any] = {
    "static_graph": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
    "compiled": {"bucket_cap_mb": 2},  # the compiler wants its first bucket, of 1 MB, to be the smallest
}
layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
torch.manual_seed(os.getpid())
plain: nn.Module = nn.Sequential(*layers, nn.Linear(16, 1))
plain = Gated(plain) if KIND == "unused" else plain
parallel = DistributedDataParallel(plain, **{"bucket_cap_mb": 0.002, **OPTIONS.get(KIND, {})})
if KIND == "comm_hook":
    parallel.register_comm_hook(distributed.group.WORLD, default_hooks.allreduce_hook)
model: Any = torch.compile(parallel, backend="aot_eager") if KIND == "compiled" else parallel
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
