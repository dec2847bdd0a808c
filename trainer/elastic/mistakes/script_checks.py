"""Finds mistakes in a training script before the first step that would otherwise show only at the first resize.

Each is a sentence that says what is wrong, where, and the way out. Nothing is guessed: what might be right is not
reported.
"""

import gc
from collections.abc import Iterator, Sequence

from hvd_elastic.trainer.collectives import library_worlds
from hvd_elastic.trainer.collectives.distributed_optimizer import is_wrapped
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.this_world import TORCH
from hvd_elastic.trainer.elastic.mistakes.alive import alive
from hvd_elastic.trainer.elastic.mistakes.refused_optimizers import LAZY, has_lazy


def find(state: object) -> list[str]:
    """Return every mistake around `state`, an `hvd.elastic` state of any kind, before the first step."""
    found = _look(state)
    if found:
        # Garbage may only be waiting for its collection. Collecting is slow, so it is done only if it can matter.
        gc.collect()
        found = _look(state)
    return found


def plain_optimizers(state: object) -> frozenset[str]:
    """Return the names of the state's optimizers that `hvd.DistributedOptimizer` has not wrapped."""
    return frozenset(name for name, value in vars(state).items() if _is_optimizer(value) and not is_wrapped(value))


def find_wrapped_since(state: object, before: frozenset[str]) -> list[str]:
    """Return a mistake for each optimizer that the training function wraps. `before`: those that it found plain."""
    return [
        f"the training function wraps state.{name} with hvd.DistributedOptimizer: it is called again after every "
        "resize, and wrapping twice fails. Wrap the optimizer before you create the state."
        for name in sorted(before)
        if is_wrapped(getattr(state, name, None))
    ]


def _look(state: object) -> list[str]:
    import torch

    from hvd_elastic.trainer.collectives.horovod_classes import ElasticSampler

    values = [value for value in vars(state).values() if value is not None]
    models = [value for value in values if isinstance(value, torch.nn.Module)]
    optimizers = [value for value in values if _is_optimizer(value)]
    others = [thing for thing in alive((torch.optim.Optimizer, ElasticSampler)) if not _among(thing, values)]
    lazy = [LAZY] if any(has_lazy([*model.parameters(), *model.buffers()]) for model in models) else []
    left_out = _optimizer_left_out(models, optimizers, others)
    return [*lazy, *left_out, *_sampler_left_out(others), *_position_in_state(state), *_of_libraries(values)]


def _of_libraries(values: Sequence[object]) -> Iterator[str]:
    return library_worlds.problems(values, averages=TORCH.models.are_there) if IS_TORCH else iter(())


def _is_optimizer(value: object) -> bool:
    import torch

    return isinstance(value, torch.optim.Optimizer)


def _optimizer_left_out(models: Sequence[object], optimizers: Sequence[object], others: list[object]) -> Iterator[str]:
    """Find an optimizer of the state's models whose own state would be lost at a resize."""
    import torch

    weights = {id(weight) for model in models if isinstance(model, torch.nn.Module) for weight in model.parameters()}
    covered = {key for optimizer in optimizers for key in _parameters(optimizer)}
    has_plain = any(not is_wrapped(optimizer) for optimizer in optimizers)
    for other in others:
        if not isinstance(other, torch.optim.Optimizer) or not weights & _parameters(other):
            continue
        name = type(other).__name__
        if not weights & covered:
            yield f"the optimizer {name} is not part of the state: pass it as State(model=..., optimizer=...)."
        elif is_wrapped(other) and has_plain:
            yield (
                f"the state has the plain optimizer {name}, but training uses the one that hvd.DistributedOptimizer "
                "returned: give that one to State(optimizer=...)."
            )


def _sampler_left_out(others: list[object]) -> Iterator[str]:
    from hvd_elastic.trainer.collectives.horovod_classes import ElasticSampler

    for other in others:
        if isinstance(other, ElasticSampler):
            yield (
                "an hvd.elastic.ElasticSampler is not part of the state: after a resize the processes would disagree "
                "on which samples were used. Pass it to the state (sampler=...), or use state.batches(dataset, ...)."
            )


def _position_in_state(state: object) -> Iterator[str]:
    """Find a loader or a stream in the state: its `state_dict` is the position of one worker in its own part."""
    from torch.utils.data import DataLoader

    from hvd_elastic.trainer.data.loaders.library_stream import is_hugging_face_stream

    for name, value in vars(state).items():
        if (isinstance(value, DataLoader) and hasattr(value, "state_dict")) or is_hugging_face_stream(value):
            yield (
                f"state.{name} is of type {type(value).__name__}, whose state is the position of one worker in its own "
                "part of the data: after a resize all workers would go on with that of one of them, and divide the "
                f"data otherwise. Leave it out of the state and iterate over state.batches({name}, ...), which keeps "
                "the position of all workers together."
            )


def _parameters(optimizer: object) -> set[int]:
    groups = getattr(optimizer, "param_groups", ())
    return {id(weight) for group in groups for weight in group["params"]}


def _among(thing: object, values: list[object]) -> bool:
    return any(thing is value for value in values)
