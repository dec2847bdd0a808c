"""What `hvd.DistributedOptimizer` cannot make distributed: refused where a script wraps it, before the first step."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives.replaced_functions import check_wrapped_optimizers
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.elastic.mistakes import script_mistake

if TYPE_CHECKING:
    import torch

LAZY: Final = (
    "a lazy module has no weights before its first batch, and each process would make its own. Run one batch through "
    "the model before the optimizer is made: `with torch.no_grad(): model(batch)`."
)
LBFGS: Final = (
    "hvd.DistributedOptimizer(LBFGS): each rank decides by its own loss how often it evaluates its closure, and the "
    "ranks would wait for each other for ever. Leave LBFGS unwrapped, and average in the closure: "
    "hvd.allreduce_(p.grad) for each parameter, and return hvd.allreduce(loss), so that all ranks decide alike."
)
ADASUM: Final = (
    "hvd.DistributedOptimizer(op=hvd.Adasum): Horovod has Adasum over MPI alone, and a world that can change its size "
    "runs over Gloo. Leave op out."
)


def install() -> None:
    """Look at each optimizer that `hvd.DistributedOptimizer` is called with. A second call does nothing."""
    check_wrapped_optimizers(_check)


def has_lazy(tensors: "Iterable[torch.Tensor]") -> bool:
    """Whether one of them has no shape before the first batch."""
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    return any(isinstance(tensor, UninitializedBuffer | UninitializedParameter) for tensor in tensors)


def _check(optimizer: object, params: Sequence[Any], lacks_adasum: bool) -> None:
    """Raises SystemExit if there is a mistake."""
    script_mistake.leave_if(list(_find(optimizer, params, lacks_adasum=lacks_adasum)))


def _find(optimizer: object, params: Sequence[Any], *, lacks_adasum: bool) -> Iterator[str]:
    import torch

    if has_lazy(weight for each in params for weight in (each["params"] if isinstance(each, dict) else [each])):
        yield LAZY
    if not _is_distributed():
        return
    if isinstance(optimizer, torch.optim.LBFGS):
        yield LBFGS
    if lacks_adasum:
        yield ADASUM


def _is_distributed() -> bool:
    """Whether Horovod averages gradients here, now or later. Alone (`python train.py`) it does nothing."""
    return WORLD.is_initialized() and (WORLD.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")
