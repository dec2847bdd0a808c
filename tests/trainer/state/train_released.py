"""A training that releases a layer at step 8, adds a group at step 12 and freezes another layer at step 16."""

import json
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn

import hvd_elastic as elastic

LENGTH, BATCH, EPOCHS = 480, 12, 3

elastic.init()
torch.manual_seed(1)
model = nn.ModuleDict({"body": nn.Linear(4, 6), "neck": nn.Linear(6, 6), "head": nn.Linear(6, 1)})
model["body"].requires_grad_(False)
known = [(name, each) for name, each in model.named_parameters() if not name.startswith("head")]
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD([each for _, each in known], lr=0.02, momentum=0.9, weight_decay=0.01), known
)
data = torch.randn(LENGTH, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float32)


@elastic.run
def train(state: elastic.State) -> None:
    for state.epoch in state.remaining_epochs(EPOCHS):
        for batch in state.batches(data, global_batch_size=BATCH):
            if state.step == 8:
                model["body"].requires_grad_(True)
            if state.step == 12 and len(optimizer.param_groups) == 1:
                optimizer.add_param_group({"params": list(model["head"].parameters()), "lr": 0.01})
            if state.step == 16:
                model["neck"].requires_grad_(False)
            optimizer.zero_grad()
            found = model["head"](model["neck"](model["body"](batch)))
            ((found - batch.sum(1, keepdim=True)).square().mean() * state.weight).backward()
            optimizer.step()
            state.step += 1
            if not Path("hurry").exists():
                time.sleep(0.05)
            state.commit()
    weights = {name: each.tolist() for name, each in model.named_parameters()}
    (Path(os.environ["TEST_LOG"]) / f"{hvd.rank()}.jsonl").write_text(json.dumps({"weights": weights}) + "\n")


train(elastic.State(model=model, optimizer=optimizer, step=0))
