"""A script written for Horovod alone. PATCHED: it calls `elastic.init()` in place of `hvd.init()`."""

import json
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch

if os.environ["PATCHED"]:
    import hvd_elastic as elastic

    elastic.init()
else:
    hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
log = (Path(os.environ["TEST_LOG"]) / f"{os.getpid()}.jsonl").open("a", buffering=1)


@hvd.elastic.run  # type: ignore[untyped-decorator]
def train(state: hvd.elastic.TorchState) -> None:
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        state.step += 1
        log.write(json.dumps({"step": time.time()}) + "\n")
        time.sleep(0.05)
        state.commit()


log.write(json.dumps({"ready": time.time()}) + "\n")
train(state)
