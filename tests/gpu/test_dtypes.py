"""Tensors in bfloat16 and complex ones, in Horovod's operations on a device."""

import horovod.torch as hvd
import pytest
import torch

from hvd_elastic.trainer.elastic import horovod_patches
from tests.gpu.machine import devices
from tests.gpu.test_commits import QueuedWork


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_an_operation_has_what_the_queued_computation_will_have_made(dtype: torch.dtype, device: str) -> None:
    """bfloat16 and complex tensors are converted in the order of the computation, on their device."""
    horovod_patches.init()
    drawn = torch.randn(6, 3, dtype=dtype)
    own = torch.zeros(6, 3, dtype=dtype, device=device)
    QueuedWork(device)
    own.copy_(drawn, non_blocking=True)
    begun = [
        hvd.allreduce_async(own),
        hvd.grouped_allreduce_async([torch.ones(2, device=device), own]),
        hvd.reducescatter_async(own),
        hvd.allgather_async(own),
        hvd.broadcast_async(own, 0),
    ]
    results = [hvd.synchronize(handle) for handle in begun]
    results[1] = results[1][1]
    for result in results:
        assert result.device.type == device
        assert result.dtype == dtype
        assert torch.equal(result.cpu(), drawn)
