"""What is replaced in the imported Horovod: `hvd.init` and `hvd.elastic.run`.

What is looked at where it is made: `hvd.DistributedOptimizer`; and where it is iterated: DistributedSampler of torch.

`elastic.init()`, `elastic.run` and the standby of a worker pod replace them; importing this package does not.
`hvd_elastic.horovod.patch_set` is another thing: it changes Horovod's source before it is compiled.
"""

from collections.abc import Callable

from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.elastic import distributed_samplers
from hvd_elastic.trainer.elastic.init_patch import patch_init
from hvd_elastic.trainer.elastic.mistakes import refused_optimizers
from hvd_elastic.trainer.elastic.run import patch_run


def install(wait: Callable[[], None] | None = None, *, solo: tuple[int, int] | None = None) -> None:
    """Patch Horovod, so that scripts that call `hvd.init()` and `hvd.elastic.run` get what this package does.

    A second call does nothing. For the arguments see `patch_init`.
    """
    patch_init(wait, solo=solo)
    patch_run()
    distributed_samplers.THIS_PROCESS.install()
    refused_optimizers.install()


def init() -> None:
    """Patch Horovod and call its `init()`, which does nothing if Horovod is initialized already."""
    install()
    WORLD.init()
