"""One answer of all ranks to a question that each answers by what it has measured itself."""

from typing import Final

from hvd_elastic.trainer.collectives.setup import setup_calls
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld

_NAME: Final = "hvd_elastic.any_rank"


def any_rank(answer: object, *, world: TrainingWorld = WORLD) -> bool:
    """Return whether any worker's answer is true: the same on every worker.

    For what all must do together as soon as one of them has reason to, such as to leave out a step whose loss is not
    finite. A worker that leaves it out alone keeps the others waiting in their averages.

    A collective operation: every worker calls it, at the same place. Call it in the function that `elastic.run` calls,
    and for a loss before `backward()`, in which Horovod's averages begin. It waits for the value of a tensor on a GPU.

    Example:
        ```python
        if elastic.any_rank(not torch.isfinite(loss)):
            continue
        ```

    Args:
        answer: this worker's own; its truth counts.
        world: that of this process.

    Raises:
        HorovodInternalError: a worker was lost meanwhile. `elastic.run` handles it; do not catch it.
    """
    import torch

    def ask() -> bool:
        return bool(world.allreduce(torch.tensor([int(own)]), op=ReduceOp.MAX, name=_NAME).item())

    own = bool(answer)
    return setup_calls.THIS_PROCESS.once(_NAME, ask)
