"""Whether all workers have the same order of an epoch, and whether it is the one with which the epoch was begun.

The order that this package computes needs no such look. One that a sampler gives, or a library's stream, may follow
from a generator that each process has seeded for itself: every worker would then take its part of another order, and
after a resize the position would be one in another order again. Both lose samples without a word. So the order has a
digest. The cursor of the pass keeps it, and the workers compare theirs before the first batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.data.batch_policy import BatchError
from hvd_elastic.trainer.data.progress import Cursor


class KnownOrder(Protocol):
    """An order that can be told from others."""

    @property
    def count(self) -> int:
        """Number of its samples, as far as they are known beforehand; 0 for a stream."""

    def digest(self, count: int) -> int:
        """Return a number above 0 for the first `count` samples, below 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one worker says of its order."""

    digest: int
    as_before: bool
    """It is the order with which the pass was begun, as far as samples were taken of it."""


def check_order(
    order: KnownOrder | None, cursor: Cursor, *, name: str, what: str, way_out: str, world: TrainingWorld = WORLD
) -> None:
    """Note the order in the cursor of a pass that begins, and compare it. A collective operation if there is one.

    Args:
        order: None: the order is computed, and the same everywhere.
        cursor: of the pass.
        name: of the pass, for the message.
        what: what gives the order, for the message.
        way_out: what the script can do.
        world: of the workers.

    Raises:
        BatchError: the workers have different orders, or another one than at the beginning. Every worker raises it.
    """
    if order is None:
        if cursor.position and cursor.order_count:
            raise BatchError(
                f"batches({name!r}): this epoch was begun with the order of a sampler, of which "
                f"{count_words(cursor.position, 'sample')} were taken: continue with it, or begin the next "
                "epoch (state.epoch += 1) without"
            )
        return
    report = report_of(order, cursor)
    reports = _gathered(report, name, world)
    message = disagreement(reports, name=name, what=what, taken=cursor.position)
    if message is not None:
        raise BatchError(f"{message}: {way_out}")
    if not cursor.position:
        cursor.order_count, cursor.order_digest = order.count, report.digest


def report_of(order: KnownOrder, cursor: Cursor) -> Report:
    """Compare an order with what the cursor knows of it."""
    if not cursor.position:
        return Report(digest=order.digest(order.count), as_before=True)
    digest = order.digest(cursor.order_count)
    # A checkpoint from before such orders were compared says nothing of a stream's.
    unknown = not cursor.order_digest and not order.count
    return Report(digest=digest, as_before=unknown or digest == cursor.order_digest)


def disagreement(reports: Sequence[Report], *, name: str, what: str, taken: int) -> str | None:
    """Say in what the orders of the workers, by rank, differ; None if they are the same as ever."""
    others = [rank for rank, each in enumerate(reports) if each.digest != reports[0].digest]
    if others:
        return f"batches({name!r}): {what} gives another order on worker {others[0]} than on worker 0"
    if not all(each.as_before for each in reports):
        return (
            f"batches({name!r}): {what} gives another order than the one with which this epoch was begun, of which "
            f"{count_words(taken, 'sample')} were taken"
        )
    return None


def _gathered(report: Report, name: str, world: TrainingWorld) -> list[Report]:
    if world.size() == 1:
        return [report]
    own = torch.tensor([[report.digest, int(report.as_before)]], dtype=torch.int64)
    rows = world.allgather(own, name=f"hvd_elastic.order.{name}").tolist()
    return [Report(digest=digest, as_before=bool(as_before)) for digest, as_before in rows]
