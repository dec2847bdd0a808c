"""Elastic Horovod training: the public API of a training script, and of whoever submits one.

::

    import hvd_elastic as elastic

    elastic.init()                                                     # in place of hvd.init()
    state = elastic.State(model=model, optimizer=optimizer, epoch=0)   # an hvd.elastic TorchState that is also durable

    @elastic.run                                                       # hvd.elastic.run without its known defects
    def train(state):
        for state.epoch in state.remaining_epochs(20):
            for batch in state.batches(dataset, batch_size=64):        # accounts for every sample over resizes
                ...
                state.commit()                                         # memory now; durable in the background

    saved = elastic.load("s3://bucket/prefix/NAMESPACE/NAME")          # in a notebook: saved["model"]; needs no Horovod

    cluster = elastic.Cluster()                                        # jobs in a cluster: submit, scale, restart ...

Importing this package imports nothing else, and changes nothing but that old paths of its modules lead to the new
ones. `elastic.init()` and `elastic.run` patch the imported Horovod (`hvd_elastic.trainer.elastic.horovod_patches`), so
`hvd.init()` and `hvd.elastic.run` behave as ours from then on. In a worker pod Horovod is patched before the script
begins.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hvd_elastic import moved_modules

if TYPE_CHECKING:
    from hvd_elastic.client.cluster import Cluster
    from hvd_elastic.trainer import (
        Checkpointing,
        Computation,
        EarlyStop,
        Evaluation,
        KeepBest,
        Moment,
        Reporting,
        ShardedOptimizer,
        State,
        Stop,
        Trainer,
        agree,
        any_rank,
        init,
        load,
        run,
    )

__all__ = [
    "Checkpointing",
    "Cluster",
    "Computation",
    "EarlyStop",
    "Evaluation",
    "KeepBest",
    "Moment",
    "Reporting",
    "ShardedOptimizer",
    "State",
    "Stop",
    "Trainer",
    "agree",
    "any_rank",
    "init",
    "load",
    "run",
]


moved_modules.install()


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a command line must not import torch."""
    if name == "Cluster":
        return import_module("hvd_elastic.client.cluster").Cluster
    if name in __all__:
        return getattr(import_module("hvd_elastic.trainer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
