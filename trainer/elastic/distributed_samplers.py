"""Whether a `torch.utils.data.DistributedSampler` still divides the data among the workers that there are.

Such a sampler is told the size of the world and its rank once. A script that builds it before `elastic.run` keeps it
over a resize, as Horovod's own `examples/elastic/pytorch/pytorch_mnist_elastic.py` does: some samples are then taken
twice and others not at all, and the workers take different numbers of steps, so that one waits for ever in a collective
operation that the others never call.

What counts is which sampler is iterated, not which one exists: a script that builds a new one after each reset may keep
the old one. So each sampler remembers the world in which it was built, and is asked when it is iterated. One that never
held its world's numbers (a fixed number of shards, one shard for each host) is left alone.
"""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.elastic.world import rendezvous_client

logger = logging.getLogger(__name__)

_BUILT_IN: Final = "_hvd_elastic_built_in"
"""Attribute of a sampler: its Origin."""

_WAY_OUT: Final = (
    "build it in the function that elastic.run calls, or anew in a reset callback (state.register_reset_callbacks), "
    "or iterate over state.batches(dataset, ...), which needs no sampler"
)


class StaleSamplerError(HvdElasticError):
    """A DistributedSampler is iterated that was built for another world."""

    exit_code = Exit.SCRIPT_MISTAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerShare:
    """One of `of` parts of the data: that of `rank`."""

    of: int
    rank: int

    @classmethod
    def of_sampler(cls, sampler: Any) -> Self:
        """What the sampler takes at present."""
        return cls(of=sampler.num_replicas, rank=sampler.rank)

    @classmethod
    def of_worker(cls, world: TrainingWorld) -> Self:
        """What this worker takes of what all workers share."""
        return cls(of=world.size(), rank=world.rank())

    @classmethod
    def on_host(cls, world: TrainingWorld) -> Self:
        """What this worker takes of what the workers of its host share."""
        return cls(of=world.local_size(), rank=world.local_rank())


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a sampler was built."""

    world: SamplerShare | None
    """The worker's share then; None if it was in no world."""
    in_training: bool
    """Whether the function that `elastic.run` calls has built it."""


def is_stale(taken: SamplerShare, *, built: SamplerShare | None, worker: SamplerShare, on_host: SamplerShare) -> bool:
    """Whether a sampler divides the data among the workers of a former world.

    A sampler over the workers of one host is right for as long as their number stays the same, and cannot be told from
    one over a former world of that size, unless they are one.

    Args:
        taken: what the sampler takes.
        built: the worker's share of the world in which it was built; None if there was no world.
        worker: the worker's share of the present world.
        on_host: the worker's share of what its host takes.
    """
    return taken == built and taken != worker and (taken != on_host or on_host.of == 1)


class SamplerWatch:
    """Watches the samplers of one process."""

    def __init__(self, world: TrainingWorld = WORLD) -> None:
        self._world = world
        self._state: object = None
        """The state that is trained now; None before and after that."""
        self._has_warned = False

    def install(self) -> None:
        """Have every DistributedSampler note where it was built, and be looked at when it is iterated."""
        from torch.utils.data import DistributedSampler

        if getattr(DistributedSampler.__iter__, "watched", False):
            return
        stock_init, stock_iter = DistributedSampler.__init__, DistributedSampler.__iter__

        @functools.wraps(stock_init)
        def init(sampler: Any, *args: Any, **kwargs: Any) -> None:
            stock_init(sampler, *args, **kwargs)
            setattr(sampler, _BUILT_IN, self._origin())

        @functools.wraps(stock_iter)
        def iterate(sampler: Any) -> Iterator[Any]:
            self.look_at(sampler)
            return stock_iter(sampler)

        iterate.watched = True  # type: ignore[attr-defined]
        DistributedSampler.__init__ = init  # type: ignore[method-assign, assignment]
        DistributedSampler.__iter__ = iterate  # type: ignore[method-assign]

    @contextmanager
    def training(self, state: object) -> Iterator[None]:
        """Within it the training function runs: workers that take other samples than their peers wait for each other.

        After it the script may still evaluate. A stale sampler is only warned of there.
        """
        self._state = state
        try:
            yield
        finally:
            self._state = None

    def look_at(self, sampler: Any) -> None:
        """Look at a sampler that is about to be iterated. Raises StaleSamplerError."""
        origin: Origin | None = getattr(sampler, _BUILT_IN, None)
        if origin is None or not self._world.is_initialized():
            return
        taken, worker = SamplerShare.of_sampler(sampler), SamplerShare.of_worker(self._world)
        if is_stale(taken, built=origin.world, worker=worker, on_host=SamplerShare.on_host(self._world)):
            message = (
                f"a {type(sampler).__name__} was built for rank {taken.rank} of {taken.of} workers, and this is rank "
                f"{worker.rank} of {worker.of}: the workers would take samples twice or leave them out, and wait for "
                f"each other in different steps. Way out: {_WAY_OUT}."
            )
            if self._state is not None:
                raise StaleSamplerError(message)
            logger.warning("%s", message)
        elif taken == origin.world and not origin.in_training and not self._has_warned and self._may_keep_it():
            self._has_warned = True
            logger.warning(
                "a %s was built for %d workers before the training function was called. The job ends with exit %d when"
                " it is used after a resize: %s.", type(sampler).__name__, taken.of, Exit.SCRIPT_MISTAKE, _WAY_OUT,
            )  # fmt: skip

    def _origin(self) -> Origin:
        world = SamplerShare.of_worker(self._world) if self._world.is_initialized() else None
        return Origin(world=world, in_training=self._state is not None)

    def _may_keep_it(self) -> bool:
        """Whether a resize may come, and the state does nothing in a reset by which the script could build another."""
        return (
            self._state is not None
            and rendezvous_client.launched()
            and SamplerShare.of_worker(self._world).rank == 0
            and not getattr(self._state, "_reset_callbacks", ())
            and all(_is_known(getattr(type(self._state), name, None)) for name in ("on_reset", "reset"))
        )


def _is_known(method: object) -> bool:
    return method is None or str(getattr(method, "__module__", "")).partition(".")[0] in {"horovod", "hvd_elastic"}


THIS_PROCESS: Final = SamplerWatch()
"""torch's class is global to its process, so there is one watch over it."""
