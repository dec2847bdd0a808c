"""A pass over data in worlds of any size, without processes: each worker is played in turn.

Every worker of every world is given a data set, options and generators of its own, as a process of its own would have.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from hvd_elastic.trainer.data.drawn_order import DrawnOrder
from hvd_elastic.trainer.data.loaders.library_stream import order_of, set_epoch
from hvd_elastic.trainer.data.loaders.loader import is_iterable, load
from hvd_elastic.trainer.data.order_check import disagreement, report_of
from hvd_elastic.trainer.data.pass_options import PassOptions, Plan, plan_pass, plan_samples
from hvd_elastic.trainer.data.progress import Cursor
from hvd_elastic.trainer.data.randomness import PassSeeds
from hvd_elastic.trainer.data.sampler import MicroBatch, SampleOrder


@dataclass(frozen=True)
class World:
    """A world of `size` workers that takes `steps` steps, of which the last `lost` are not committed."""

    size: int
    steps: int
    lost: int = 0


LAST = 10**6
worlds = st.lists(
    st.builds(World, size=st.integers(1, 4), steps=st.integers(0, 5), lost=st.integers(0, 2)), max_size=4
).flatmap(lambda first: st.integers(1, 4).map(lambda size: [*first, World(size, LAST)]))

Part = tuple[list[Any], MicroBatch]
Step = list[list[Part]]
"""By rank, what a worker takes in a step."""


@dataclass
class Stranger:
    """Tells the processes apart: no two begin with the same state of their generators."""

    number: int = 0

    def begin(self) -> None:
        self.number += 1
        torch.manual_seed(self.number)
        np.random.seed(self.number)
        random.seed(self.number)


def committed_steps(
    dataset: Callable[[], Any], options: Callable[[], PassOptions], played: list[World], *, epoch: int = 0
) -> Iterator[Step]:
    """Yield the steps that are committed, over all worlds. Fails if workers disagree."""
    cursor, stranger = Cursor(), Stranger()
    for world in played:
        ranks, reports = [], []
        for rank in range(world.size):
            stranger.begin()
            data, chosen, own = dataset(), options(), replace(cursor)
            chosen.validate(data, name="train")
            plan, order = _plan(data, chosen, own, epoch=epoch, rank=rank, size=world.size)
            known = order if isinstance(order, DrawnOrder) else order_of(data)
            if known is not None:
                reports.append(report_of(known, own))
                begun = known.count, reports[0].digest
            loading = load(plan, data, order, list, PassSeeds(key=1), **chosen.loading)
            most = min(world.steps, chosen.max_steps - cursor.steps if chosen.max_steps is not None else LAST)
            ranks.append(_steps(loading, most))
        if reports:
            assert disagreement(reports, name="train", what="the order", taken=cursor.position) is None
            if not cursor.position:
                cursor.order_count, cursor.order_digest = begun
        assert len({len(steps) for steps in ranks}) == 1, "the workers disagree on the number of steps"
        steps = [list(step) for step in zip(*ranks, strict=True)]
        for step in steps if world.steps == LAST else steps[: max(0, len(steps) - world.lost)]:
            cursor.position = step[0][-1][1].position
            cursor.steps += 1
            yield step


def samples_of(step: Step) -> list[Any]:
    """The samples of a step that count, over all workers; what is only padding does not."""
    return [sample for parts in step for samples, part in parts if part.weight for sample in samples]


def _plan(
    dataset: Any, options: PassOptions, cursor: Cursor, *, epoch: int, rank: int, size: int
) -> tuple[Plan, SampleOrder | DrawnOrder | None]:
    if is_iterable(dataset):
        set_epoch(dataset, epoch)
        return plan_samples(cursor, options, rank=rank, size=size), None
    cursor.length = len(dataset)
    return plan_pass(cursor, options, epoch=epoch, path=(), name="train", rank=rank, size=size)


def _steps(loading: Iterator[tuple[Any, MicroBatch]], most: int) -> list[list[Part]]:
    steps: list[list[Part]] = []
    parts: list[Part] = []
    while len(steps) < most:
        pair = next(loading, None)
        if pair is None:
            break
        assert len(pair[0]) == pair[1].count
        parts.append(pair)
        if pair[1].last:
            steps.append(parts)
            parts = []
    return steps
