"""One model with weights in bfloat16, complex and float32. SHARDED: which optimizer."""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from testbed.local.either_engine import averaging

ENV = os.environ


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.halved = nn.Linear(8, 6, dtype=torch.bfloat16)
        self.complex = nn.Linear(6, 4, dtype=torch.complex64)
        self.full = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.halved(x.bfloat16()).tanh().to(torch.complex64)
        result: torch.Tensor = self.full(self.complex(hidden).abs())
        return result


elastic.init()
torch.manual_seed(0)
inputs = torch.randn(240, 8)
dataset = TensorDataset(inputs, inputs.square().mean(dim=1, keepdim=True))
model = Mixed()
options: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.01}
called, optimizer = (
    (model, elastic.ShardedOptimizer(model.parameters(), torch.optim.AdamW, **options))
    if "SHARDED" in ENV
    else averaging(model, torch.optim.AdamW(model.parameters(), **options), groups=2)
)
if not IS_TORCH:
    import horovod.torch as hvd

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    scale = hvd.broadcast(torch.full((1,), 3.0 if hvd.rank() == 0 else 0.0).bfloat16(), root_rank=0)
    assert scale.tolist() == [3.0], "a process that joins is given it, too"
state = elastic.State(model=model, optimizer=optimizer)
log = (Path(ENV["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(6):
        for x, y in state.batches(dataset, global_batch_size=24, seed=1):
            optimizer.zero_grad()
            loss = (called(x) - y).square().mean() * state.weight
            loss.backward()
            optimizer.step()
            time.sleep(float(ENV["STEP_SECONDS"]))
            state.commit(loss=WORLD.allreduce(loss, op=ReduceOp.AVERAGE, name="loss").item())
    weights = {name: weight.detach().flatten().view(torch.uint8).tolist() for name, weight in model.named_parameters()}
    log.write(json.dumps({"end": weights}) + "\n")


train(state)
