"""What a rehearsal trains, in the pods of its job: a small model at a steady pace that tells each step.

It runs as `python -m hvd_elastic.client.doctor.rehearsal_training`, so the image needs nothing beside this package. A
step is told before it is committed: one that must be done again is told again.
"""

import os
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic
from hvd_elastic.mpijob.contract import ENV_ENGINE, Engine

PACE_SECONDS = 0.1
SAMPLES = 6_000
EPOCHS = 1_000

elastic.init()
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(SAMPLES, 16), torch.randint(0, 4, (SAMPLES,)))
model: nn.Module = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.environ.get(ENV_ENGINE) == Engine.TORCH:
    from torch.distributed import get_rank as rank
    from torch.distributed import get_world_size as size
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model)
else:
    import horovod.torch as hvd

    rank, size = hvd.rank, hvd.size
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@elastic.run
def train(state: elastic.State) -> None:
    """Until the job is deleted."""
    for state.epoch in state.remaining_epochs(EPOCHS):
        for inputs, labels in state.batches(dataset, global_batch_size=60):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            (loss * state.weight).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            time.sleep(PACE_SECONDS)
            if rank() == 0:
                print(f"rehearsal step {state.step_count + 1} size {size()}", flush=True)  # noqa: T201 - the launcher brings it to the log
            state.commit(loss=loss.item())


train(elastic.State(model=model, optimizer=optimizer, epoch=0))
