"""A loop in the form of Horovod's examples: DistributedSampler, DataLoader, TorchState. BUILT: where the sampler is."""

import os
import time

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hvd_elastic as elastic

BUILT = os.environ["BUILT"]
elastic.init()
dataset = TensorDataset(torch.arange(96.0)[:, None])


def build_loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    shards, shard = (5, hvd.rank() % 5) if BUILT == "fixed" else (hvd.size(), hvd.rank())
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, num_replicas=shards, rank=shard)
    return DataLoader(dataset, batch_size=4, sampler=sampler)


def build_another() -> None:
    global loader  # noqa: PLW0603 - as scripts do
    loader = build_loader()


def update_sampler() -> None:
    sampler = loader.sampler
    assert isinstance(sampler, DistributedSampler)
    sampler.num_replicas, sampler.rank = hvd.size(), hvd.rank()
    sampler.num_samples = len(dataset) // hvd.size()
    sampler.total_size = sampler.num_samples * hvd.size()


model = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1e-6), named_parameters=model.named_parameters()
)
loader = build_loader()
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)
if BUILT in ("callback", "updated"):
    state.register_reset_callbacks([build_another if BUILT == "callback" else update_sampler])


@elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    if BUILT == "training":
        build_another()
    while True:
        for (samples,) in loader:
            optimizer.zero_grad()
            model(samples).square().mean().backward()
            optimizer.step()
            time.sleep(0.02)
            state.commit()
        state.epoch += 1


train(state)
