"""How a script has its gradients averaged over the engine that HVD_ELASTIC_ENGINE names, as a script for that alone."""

from typing import Any

import torch

from hvd_elastic.trainer.collectives.engine import IS_TORCH


def averaging(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> tuple[torch.nn.Module, Any]:
    """Return what to call in place of the model, and the optimizer to step. `options`: of `hvd.DistributedOptimizer`.

    The State has `model` itself: so its names are the same over both.
    """
    if IS_TORCH:
        return torch.nn.parallel.DistributedDataParallel(model), optimizer
    import horovod.torch as hvd

    return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
