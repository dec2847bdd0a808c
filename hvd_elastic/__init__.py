"""Elastic Horovod training: the public API of a training script.

::

    import hvd_elastic as elastic

    elastic.init()                                                     # hvd.init()
    state = elastic.State(model=model, optimizer=optimizer, epoch=0)   # an hvd.elastic TorchState that is also durable

    @elastic.run                                                       # hvd.elastic.run with its known holes closed
    def train(state):
        for state.epoch in state.remaining_epochs(20):
            for batch in state.batches(dataset, batch_size=64):        # accounts for every sample over resizes
                ...
                state.commit()                                         # memory now; durable in the background

Where Horovod is loaded already, `hvd.init()` and `hvd.elastic.run` get the cures too
(`hvd_elastic.trainer.elastic.horovod_patches.install`).
"""

import sys
from typing import TYPE_CHECKING, Any

from hvd_elastic import trainer

if TYPE_CHECKING:
    from hvd_elastic.trainer import State, Trainer, init
    from hvd_elastic.trainer.elastic.run import run

__all__ = ["State", "Trainer", "init", "run"]


def __getattr__(name: str) -> Any:
    """As late as `trainer` itself: a command line must not import torch."""
    if name == "run":  # there this is the name of a module
        from hvd_elastic.trainer.elastic.run import run

        return run
    if name in __all__:
        return getattr(trainer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


if "horovod.torch" in sys.modules:
    from hvd_elastic.trainer.elastic.horovod_patches import install

    install()
