"""Which commit the workers of a new world go on from: the newest of which every share is left. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvd_elastic.trainer.sharding.shares import Length, Share, lost_elements, shares_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one rank has in its memory."""

    commits: tuple[int, ...] = ()
    """Steps of the commits that it holds: the last one, and the one before as long as that may be needed."""
    shares: Mapping[int, tuple[Share, ...]]
    """By step of a commit, the shares that it has of it: its own, and the copy of another rank's."""


def choose_commit(kept: Sequence[Kept], lengths: Sequence[Length]) -> int | None:
    """Return the step of the newest commit that is whole; None if none is.

    A commit is whole if a rank holds it and all ranks together have every element of the sharded state. After a death
    in the middle of a commit the one before is: its copies were made before any rank went on.
    """
    steps = sorted({step for each in kept for step in each.commits}, reverse=True)
    for step in steps:
        held = [each.shares.get(step, ()) for each in kept]
        if not any(lost_elements(length, held) for length in set(lengths)):
            return step
    return None


def words_of_loss(kept: Sequence[Kept]) -> str:
    """Return which shares of the newest commit are left nowhere: `the shares of ranks 1 and 3 of 4, of step 120`."""
    step = max(step for each in kept for step in each.commits)
    left = {share for each in kept for share in each.shares.get(step, ())}
    size = max(share.size for share in left)
    gone = [share.rank for share in shares_of(size) if share not in left]
    ranks = " and ".join([", ".join(map(str, gone[:-1])), str(gone[-1])]).removeprefix(" and ") if gone else "some"
    return f"the shares of {'ranks' if len(gone) > 1 else 'rank'} {ranks} of {size}, of step {step}"
