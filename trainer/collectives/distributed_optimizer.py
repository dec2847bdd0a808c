"""Horovod's optimizers, as they are seen from outside: `hvd.DistributedOptimizer` makes a class for each that it wraps.

For any other optimizer the answer is no, and nothing is done.
"""

from typing import Any


def is_wrapped(optimizer: object) -> bool:
    """Whether `hvd.DistributedOptimizer` has returned `optimizer`."""
    return any("_allreduce_grad_async" in vars(base) for base in type(optimizer).__mro__)


def sums_gradients(optimizer: object) -> bool:
    """Whether it adds the workers' gradients up (`op=hvd.Sum`), where others take their mean."""
    from horovod.torch import Sum

    return is_wrapped(optimizer) and getattr(optimizer, "op", None) == Sum


def holds_gradients(optimizer: object) -> bool:
    """Whether it has gradients that no step has used. Without its hooks (a world of one) nobody can tell."""
    return bool(getattr(optimizer, "_handles", None))


def set_backward_passes(optimizer: object, passes: int) -> None:
    """Make it send a gradient after this many backward passes; its step sends what is missing."""
    set_passes = getattr(optimizer, "set_backward_passes_per_step", None)
    if set_passes is not None:
        set_passes(passes)


def forget_averaging(optimizer: Any) -> None:
    """Make it wait for the first backward pass of a step.

    Its own `load_state_dict` leaves the counts of the groups as they are, and that of Adasum leaves everything: then
    the next backward pass averages too early, or `zero_grad()` refuses its service.
    """
    if hasattr(optimizer, "_allreduce_delay"):
        optimizer._handles.clear()
        optimizer._synchronized = False
        for parameter in optimizer._allreduce_delay:
            optimizer._allreduce_delay[parameter] = optimizer.backward_passes_per_step
        for group in getattr(optimizer, "_group_counts", ()):
            optimizer._group_counts[group] = 0
