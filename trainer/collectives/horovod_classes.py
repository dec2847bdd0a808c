"""Classes of Horovod that ours extend, make or look for; over torch.distributed what stands in their place.

Importing this module imports the engine.
"""

from typing import TYPE_CHECKING

from hvd_elastic.trainer.collectives.engine import IS_TORCH

if TYPE_CHECKING or not IS_TORCH:
    import horovod.torch as hvd
    from horovod.common.elastic import State as _HorovodState
    from horovod.torch.elastic.sampler import ElasticSampler
    from horovod.torch.elastic.state import TorchState

    def init_torch_state(state: TorchState) -> None:
        """Give a state what Horovod's own `State` begins with, and none of TorchState's handlers for models."""
        _HorovodState.__init__(state, bcast_object=hvd.broadcast_object, get_rank=hvd.rank)
else:
    from hvd_elastic.trainer.collectives.torch_engine.torch_classes import ElasticSampler, TorchState, init_torch_state

__all__ = ["ElasticSampler", "TorchState", "init_torch_state"]
