"""A training that skips each batch whose step raises anything: also what must reach `elastic.run`."""

import json
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch

import hvd_elastic as elastic

elastic.init()
torch.manual_seed(1)
model = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
data = torch.arange(600.0)[:, None] / 600


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(1):
        for batch in state.batches(data, global_batch_size=6):
            try:
                optimizer.zero_grad()
                (model(batch).square().mean() * state.weight).backward()
                optimizer.step()
                if not Path("hurry").exists():
                    time.sleep(0.05)
                state.commit()
            except Exception:
                continue
    done = {"samples": state.samples.seen, "rank": hvd.rank(), "weights": [each.item() for each in model.parameters()]}
    (Path(os.environ["TEST_LOG"]) / f"{hvd.rank()}.jsonl").write_text(json.dumps({"end": done}) + "\n")


train(elastic.State(model=model, optimizer=optimizer))
