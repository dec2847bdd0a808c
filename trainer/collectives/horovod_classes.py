"""Classes of Horovod that ours extend, make or look for. Importing this module imports Horovod and torch."""

import horovod.torch as hvd
from horovod.common.elastic import State as _HorovodState
from horovod.torch import DistributedOptimizer
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["DistributedOptimizer", "ElasticSampler", "TorchState", "init_torch_state"]


def init_torch_state(state: TorchState) -> None:
    """Give a state what Horovod's own `State` begins with, and none of TorchState's handlers for models."""
    _HorovodState.__init__(state, bcast_object=hvd.broadcast_object, get_rank=hvd.rank)
