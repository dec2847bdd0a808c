"""Which modules are divided over the ranks of a world."""

from collections.abc import Iterator

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from hvd_elastic.trainer.state.divided_modules import divided_modules


@pytest.fixture
def world() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("world")
def test_fsdp_and_tensor_parallelism_divide() -> None:
    mesh = init_device_mesh("cpu", (1,))
    plain, sharded, parallel = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)) for _ in range(3))
    fully_shard(sharded[0], mesh=mesh)
    parallelize_module(parallel, mesh, {"1": ColwiseParallel()})
    values = {"plain": plain, "sharded": sharded, "parallel": parallel, "rate": 0.1, "none": None}
    assert [*divided_modules(values)] == ["sharded", "parallel"]
    assert not [*divided_modules({"tensor": torch.ones(2)})]
