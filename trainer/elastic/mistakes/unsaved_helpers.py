"""What training uses and the state does not have: a scheduler, a GradScaler, an average of the weights.

A newcomer would have it afresh, and the ranks would drift apart without a word. That an object exists says little: a
script may have made it for another purpose, or not use it at all. So those that exist as training begins are looked at
again at each commit, and one that has moved on is a mistake.
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from hvd_elastic.trainer.elastic.mistakes.alive import alive

_MOST_OBJECTS: Final = 50_000
"""That are looked at before an object counts as part of the state after all."""

_WAY_OUT: Final = "a process that joins would begin with a new one, and drift apart. Pass it to the state"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """One object that is not in the state. `moved`: how far it has come; it changes when it is used."""

    thing: "weakref.ref[Any]"
    words: str
    moved: Callable[[Any], object]
    began: object


class UnsavedHelpers:
    """Looks at what is alive as a training function begins, once in the life of a process."""

    def __init__(self, state: object) -> None:
        values = [value for name, value in vars(state).items() if not name.startswith("_") and value is not None]
        self._watched = list(_watch(values, alive((LRScheduler, GradScaler, AveragedModel))))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look at."""
        return not self._watched

    def find(self) -> list[str]:
        """Return a mistake for each object that training has used since. Costs a microsecond for each."""
        found = []
        for one in self._watched:
            thing = one.thing()
            if thing is not None and one.moved(thing) != one.began:
                found.append(f"{one.words}, and is not part of the state: {_WAY_OUT}.")
        return found


def _watch(values: list[object], things: Iterable[object]) -> Iterator[_Watched]:
    weights = {id(weight) for value in values for weight in _weights(value)}
    shapes = [_shapes(value) for value in values if isinstance(value, torch.nn.Module)]
    moved: Callable[[Any], object]
    for thing in things:
        name = type(thing).__name__
        match thing:
            case LRScheduler() if weights.isdisjoint(map(id, _weights(thing.optimizer))):
                continue
            case LRScheduler():
                words, moved = f"the scheduler {name} changes the learning rate of the state's optimizer", _epochs
            case GradScaler():
                words, moved = f"the {name} scales the losses of this training", _growth
            case AveragedModel() if _shapes(thing.module) in shapes:
                words, moved = f"the {name} averages the weights of the state's model", _averaged
            case _:
                continue
        if not _reaches(values, thing):
            yield _Watched(thing=weakref.ref(thing), words=words, moved=moved, began=moved(thing))


def _epochs(scheduler: Any) -> object:
    return scheduler.last_epoch, getattr(scheduler, "_step_count", None)


def _growth(scaler: Any) -> object:
    """A scaler that was never used has no tensor."""
    return scaler.is_enabled() and scaler._scale is not None


def _averaged(model: Any) -> object:
    """Not the count itself: to read it from a GPU would wait for all that the GPU has to do, at each commit."""
    return model.n_averaged._version


def _weights(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
    elif isinstance(value, torch.optim.Optimizer):
        yield from (weight for group in value.param_groups for weight in group["params"])


def _shapes(model: torch.nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, weight.shape) for name, weight in model.named_parameters()]


def _reaches(values: list[object], wanted: object) -> bool:
    """Whether a value of the state holds it, at any depth: a list of schedulers, or a library's whole trainer."""
    seen, due = set(map(id, values)), list(values)
    while due:
        found = due.pop()
        if found is wanted:
            return True
        if len(seen) > _MOST_OBJECTS:
            return True
        if isinstance(found, torch.Tensor | torch.nn.Module | type | Callable):
            continue
        for each in gc.get_referents(found):
            if id(each) not in seen:
                seen.add(id(each))
                due.append(each)
    return False
