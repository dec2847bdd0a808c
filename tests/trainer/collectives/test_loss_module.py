"""A loss that averages gradients, in worlds of two real processes: whatever each rank's loss uses of the model."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from testbed.local import forkserver

MEMBER = """
import json
import sys
from datetime import timedelta

import torch
from torch.distributed import FileStore

from hvd_elastic.trainer.collectives.distributed_optimizer import average_gradients
from hvd_elastic.trainer.collectives.this_world import TORCH as world
from hvd_elastic.trainer.collectives.torch_engine import torch_world

torch_world.FORM_TIMEOUT = timedelta(seconds=60)  # this store, unlike the product's, waits no longer than it is told to
world.begin_with(lambda form: form(), lambda: FileStore(sys.argv[1], 2), lambda: None)
world.init()
rank = world.rank()
model = torch.nn.ModuleDict({name: torch.nn.Linear(1, 1, bias=False) for name in "abc"})
model["c"].requires_grad_(False)
model.register_buffer("seen", torch.tensor(rank))


def loss(model, batch):
    model["c"].requires_grad_("c" in batch)
    return sum((model[name](torch.ones(1, 1) * (1 + rank)) for name in batch), torch.zeros(())).sum()


averaged, optimizer = average_gradients(loss, model, torch.optim.SGD(model.parameters(), lr=1.0))
for passes in json.loads(sys.argv[2]):
    is_last = False
    world.models.split_steps(lambda: is_last)
    for number, batch in enumerate(passes[rank], start=1):
        is_last = number == len(passes[rank])
        averaged(model, batch).backward()
    found = {name: each.weight.grad for name, each in model.items()}
    print(json.dumps({name: None if each is None else each.item() for name, each in found.items()}))
    optimizer.zero_grad()
assert model.seen == rank, "buffers are each rank's own, as over Horovod"
world.shutdown()
"""
"""Of a world of two, whose inputs are 1 and 2. Gets by step, rank and pass which layers the loss uses."""

STEPS = [
    ([["ab"], ["ab"]], {"a": 1.5, "b": 1.5, "c": None}),
    ([["a"], ["b"]], {"a": 0.5, "b": 1.0, "c": None}),
    ([["b"], ["b"]], {"a": None, "b": 1.5, "c": None}),
    ([["ab", "a"], ["ab", "a"]], {"a": 3.0, "b": 1.5, "c": None}),
    ([["a", "b"], ["b", "b"]], {"a": 0.5, "b": 2.5, "c": None}),
    ([["abc"], ["abc"]], {"a": 1.5, "b": 1.5, "c": 1.5}),
    ([["abc", "abc"], ["abc", "abc"]], {"a": 3.0, "b": 3.0, "c": 3.0}),
    ([["ab"], ["ab"]], {"a": 1.5, "b": 1.5, "c": None}),
]
"""What ranks use in each pass of a step, and the gradients that both have then."""


@pytest.mark.process
@pytest.mark.core
def test_gradients_are_the_mean_of_whatever_ranks_use(tmp_path: Path) -> None:
    place = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_SIZE": "2", "HVD_ELASTIC_ENGINE": "torch"}
    arguments = [str(tmp_path / "store"), json.dumps([passes for passes, _ in STEPS])]
    members = [
        subprocess.Popen(
            [*forkserver.python(), "-c", MEMBER, *arguments],
            env=os.environ | place | {"HOROVOD_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [member.communicate(timeout=240)[0] for member in members]
    finally:
        for member in members:
            member.kill()
    expected = [gradients for _, gradients in STEPS]
    assert [[json.loads(line) for line in each.splitlines()] for each in said] == [expected, expected]
