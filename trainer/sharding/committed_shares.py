"""The shares of a state's sharded optimizers at its commits: copied to a second rank, and moved into the next world.

A commit is in this process's memory. Of a sharded optimizer it has this rank's share, which would be lost with the
process. So each commit also goes to the rank across the ring (`Share.copied`), over the network and before the workers
agree on the commit: whoever goes on knows that every copy of it has been made. Until then the commit before is kept,
with its copies: a death in between goes back to it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import horovod.torch as hvd

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.trainer.sharding.commit_choice import Kept, choose_commit, words_of_loss
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.optimizer_content import OptimizerContent
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.sharding.share_transfer import Shards, empty_shards, redistribute
from hvd_elastic.trainer.sharding.shares import WHOLE, Share, shares_of

logger = logging.getLogger(__name__)

Optimizers = Mapping[str, ShardedOptimizer]
"""By their name in the State."""
Tree = Any

GENERATIONS: Final = 2
"""Commits of which copies are kept: the last one, and the one before until all have agreed on the last."""


class SharesLostError(HvdElasticError):
    """A share of an optimizer's state and its copy were lost together, and no durable checkpoint has them."""


@dataclass(slots=True, kw_only=True)
class _Copies:
    """What this rank keeps for another one, of one commit."""

    step: int
    share: Share
    shards: dict[str, Shards]
    """By the optimizer's name."""


class CommittedShares:
    """The shares that one process has in its memory besides its own."""

    def __init__(self) -> None:
        self._generations: list[_Copies] = []
        self.are_lost = False
        """No commit is whole any more; until the durable checkpoint is restored."""

    def copy(self, optimizers: Optimizers, committed: Tree, step: int) -> None:
        """Send this rank's shares of a commit to the rank across the ring. A collective operation.

        Args:
            optimizers: those of the state.
            committed: the commit, in host memory.
            step: its number.
        """
        world = shares_of(hvd.size())
        if len(world) == 1:
            self._generations = []
            return
        wanted = [share.copied() for share in world]
        mine = wanted[hvd.rank()]
        spare = self._generations.pop(0) if len(self._generations) == GENERATIONS else None
        copies: dict[str, Shards] = {}
        for name, optimizer in optimizers.items():
            content = OptimizerContent.of(committed["objects"][name])
            fresh = empty_shards(content.shards, optimizer.lengths, mine)
            into = _reused(spare.shards.get(name) if spare is not None else None, fresh)
            redistribute(
                optimizer.lengths,
                held=[[share] for share in world],
                wanted=wanted,
                own={content.share: content.shards},
                outline=content.shards,
                into=into,
                label=f"copy.{name}",
            )
            copies[name] = into
        self._generations.append(_Copies(step=step, share=mine, shards=copies))

    def agree_on_commit(
        self, optimizers: Optimizers, commits: Sequence[tuple[int, Tree]]
    ) -> tuple[int | None, list[Kept]]:
        """Return the step of the commit that all go on from, and what each rank has. A collective operation.

        Args:
            optimizers: those of the state.
            commits: the commits that this process holds, each with its step.

        Returns:
            The step, or None if no commit is whole; and by rank what it has.
        """
        shares: dict[int, tuple[Share, ...]] = {}
        for step, tree in commits:
            own = {OptimizerContent.of(tree["objects"][name]).share for name in optimizers}
            shares[step] = (*shares.get(step, ()), *sorted(own))
        for each in self._generations:
            shares[each.step] = (*shares.get(each.step, ()), each.share)
        mine = Kept(commits=tuple(step for step, _ in commits), shares=shares)
        kept: list[Kept] = hvd.allgather_object(mine, name="hvd_elastic.kept")
        lengths = [length for optimizer in optimizers.values() for length in optimizer.lengths]
        chosen = choose_commit(kept, lengths)
        self.are_lost |= chosen is None and any(each.commits for each in kept)
        if self.are_lost and hvd.rank() == 0 and any(each.commits for each in kept):
            logger.warning("%s were lost with their copies: back to the newest durable checkpoint", words_of_loss(kept))
        self._generations = [each for each in self._generations if chosen is not None and each.step <= chosen]
        return chosen, kept

    def move(
        self, optimizers: Optimizers, commits: Sequence[tuple[int, Tree]], step: int, kept: Sequence[Kept]
    ) -> bool:
        """Give each optimizer this rank's share in the present world. A collective operation.

        Args:
            optimizers: those of the state. All have the same content outside of their shares.
            commits: the commits that this process holds, each with its step.
            step: that of the commit to go on from.
            kept: by rank, what it has.

        Returns:
            Whether anything was moved: if not, every rank has its share and its copy already.
        """
        world = shares_of(hvd.size())
        held = [each.shares.get(step, ()) for each in kept]
        wanted = list(world) if len(world) == 1 else [share.copied() for share in world]
        if all({share, copied} <= set(has) for share, copied, has in zip(world, wanted, held, strict=True)):
            return False
        for name, optimizer in optimizers.items():
            own = {
                (content := OptimizerContent.of(tree["objects"][name])).share: content.shards
                for at, tree in commits
                if at == step
            }
            own |= {each.share: each.shards[name] for each in self._generations if each.step == step}
            self._move(name, optimizer, held, own)
        return True

    def spread(self, optimizers: Optimizers, root: int) -> None:
        """Give each rank its share of what the root has: a durable checkpoint, or nothing. A collective operation."""
        for name, optimizer in optimizers.items():
            content = optimizer.content
            is_root = hvd.rank() == root
            share = hvd.broadcast_object(content.share, root_rank=root, name=f"hvd_elastic.share.{name}")
            if share != WHOLE:
                raise ShardingError(
                    f"state.{name}: ShardedOptimizer: steps were taken before elastic.run, and each rank knows its own"
                    " share of them alone. Begin training in the function that elastic.run calls"
                )
            held = [[share] if rank == root else [] for rank in range(hvd.size())]
            self._move(name, optimizer, held, {share: content.shards} if is_root else {})

    def _move(self, name: str, optimizer: ShardedOptimizer, held: Sequence[Any], own: Mapping[Share, Shards]) -> None:
        world, content = shares_of(hvd.size()), optimizer.content
        mine = world[hvd.rank()]
        into = empty_shards(content.shards, optimizer.lengths, mine)
        on_host = {
            share: [{key: each.cpu() for key, each in one.items()} for one in shards] for share, shards in own.items()
        }
        redistribute(
            optimizer.lengths,
            held=held,
            wanted=world,
            own=on_host,
            outline=content.shards,
            into=into,
            label=f"move.{name}",
        )
        optimizer.place(OptimizerContent(share=mine, shards=into, numbers=content.numbers))


def _reused(spare: Shards | None, fresh: Shards) -> Shards:
    """Return the memory of a former commit where it fits. The kernel gives what was never written for nothing."""
    if spare is None:
        return fresh
    return [
        {name: old[name] if name in old and _is_alike(old[name], tensor) else tensor for name, tensor in bucket.items()}
        for old, bucket in zip(spare, fresh, strict=True)
    ]


def _is_alike(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and one.dtype == other.dtype)
