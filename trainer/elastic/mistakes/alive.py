"""What objects of some classes this process has, and what tensors belong to a state."""

import gc
import types
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_MOST_OBJECTS: Final = 50_000
"""That are looked at for tensors, beside those of models and optimizers."""


def alive(wanted: tuple[type, ...]) -> list[object]:
    """Return all objects of these classes. Takes some ten milliseconds for a process that has imported torch."""
    # `type()`, because isinstance asks a lazy proxy for its class, which may import or raise. Once for each class,
    # because there are some hundred thousand objects of a few thousand classes.
    known: dict[type, bool] = {}
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        if kind not in known:
            known[kind] = issubclass(kind, wanted)
        if known[kind]:
            found.append(thing)
    return found


def tensors_within(state: object) -> "Iterator[torch.Tensor]":
    """Yield the tensors of the state's values: of its models and optimizers all, of other objects those near by."""
    import torch

    due = deque(value for name, value in vars(state).items() if not name.startswith("_"))
    seen = set(map(id, due))
    while due and len(seen) < _MOST_OBJECTS:
        found = due.popleft()
        if isinstance(found, torch.Tensor):
            yield found
        elif isinstance(found, torch.nn.Module):
            yield from (*found.parameters(), *found.buffers())
        elif not isinstance(found, type | types.FunctionType | types.ModuleType):
            near = [found.param_groups, found.state] if isinstance(found, torch.optim.Optimizer) else None
            for each in near or gc.get_referents(found):
                if id(each) not in seen:
                    seen.add(id(each))
                    due.append(each)
