"""The shares of a state's sharded objects at its commits: copied to a second rank, and moved into the next world.

A commit is in this process's memory. Of a sharded object it has this rank's share, which would be lost with the
process. So each commit also goes to the rank across the ring (`Share.copied`), over the network and before the workers
agree on the commit: whoever goes on knows that every copy of it has been made. Until then the commit before is kept,
with its copies: a death in between goes back to it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.sharding.commit_choice import Kept, choose_commit, words_of_loss
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.host_shards import Shards, empty_shards, on_host, reused
from hvd_elastic.trainer.sharding.sharded_content import ShardedContent, ShardedObject
from hvd_elastic.trainer.sharding.share_transfer import redistribute
from hvd_elastic.trainer.sharding.shares import WHOLE, Holdings, Share, lost_elements, shares_of

logger = logging.getLogger(__name__)

Objects = Mapping[str, ShardedObject]
"""By their name in the State."""
Tree = Any

GENERATIONS: Final = 2
"""Commits of which copies are kept: the last one, and the one before until all have agreed on the last."""


class SharesLostError(HvdElasticError):
    """A share of the state and its copy were lost together, and no durable checkpoint has them."""


@dataclass(slots=True, kw_only=True)
class _Copies:
    """What this rank keeps for another one, of one commit."""

    step: int
    share: Share
    shards: dict[str, Shards]
    """By the object's name."""


class CommittedShares:
    """The shares that one process has in its memory besides its own."""

    def __init__(self, world: TrainingWorld = WORLD) -> None:
        self._world = world
        self._generations: list[_Copies] = []
        self.are_lost = False
        """No commit is whole any more; until the durable checkpoint is restored."""

    def copy(self, objects: Objects, committed: Tree, step: int) -> None:
        """Send this rank's shares of a commit to the rank across the ring. A collective operation."""
        world = shares_of(self._world.size())
        if len(world) == 1:
            self._generations = []
            return
        spare = self._take_spare()
        copies: dict[str, Shards] = {}
        for name, sharded in objects.items():
            content = ShardedContent.of(committed["objects"][name])
            copies[name] = self._received(
                sharded,
                held=[[share] for share in world],
                wanted=[share.copied() for share in world],
                own={content.share: content.shards},
                outline=content.shards,
                spare=spare.shards.get(name) if spare is not None else None,
                label=f"copy.{name}",
            )
        self._generations.append(_Copies(step=step, share=world[self._world.rank()].copied(), shards=copies))

    def _take_spare(self) -> "_Copies | None":
        """Give up the older generation of two, whose memory the next one may use."""
        return self._generations.pop(0) if len(self._generations) == GENERATIONS else None

    def agree_on_commit(self, objects: Objects, commits: Sequence[tuple[int, Tree]]) -> tuple[int | None, list[Kept]]:
        """Return the step of the commit that all go on from, and what each rank has. A collective operation.

        Returns:
            The step, or None if no commit is whole; and by rank what it has.
        """
        shares: dict[int, tuple[Share, ...]] = {}
        for step, tree in commits:
            own = {ShardedContent.of(tree["objects"][name]).share for name in objects}
            shares[step] = (*shares.get(step, ()), *sorted(own))
        for each in self._generations:
            shares[each.step] = (*shares.get(each.step, ()), each.share)
        mine = Kept(commits=tuple(step for step, _ in commits), shares=shares)
        kept = self._world.allgather_object(mine, name="hvd_elastic.kept")
        lengths = [length for sharded in objects.values() for length in sharded.lengths]
        chosen = choose_commit(kept, lengths)
        self.are_lost |= chosen is None and any(each.commits for each in kept)
        if self.are_lost and self._world.rank() == 0 and any(each.commits for each in kept):
            logger.warning("%s were lost with their copies: back to the newest durable checkpoint", words_of_loss(kept))
        self._generations = [each for each in self._generations if chosen is not None and each.step <= chosen]
        return chosen, kept

    def move(self, objects: Objects, commits: Sequence[tuple[int, Tree]], step: int, kept: Sequence[Kept]) -> bool:
        """Give each object this rank's share in the present world, and its copy to a second rank.

        A collective operation. The copies, too, are made of what ranks had before: they have much of them, so that less
        is sent than if the new shares went across the ring.

        Args:
            objects: those of the state. All have the same content outside of their shares.
            commits: the commits that this process holds, each with its step.
            step: that of the commit to go on from.
            kept: by rank, what it has.

        Returns:
            Whether anything was moved: if not, every rank has its share and its copy already.
        """
        world = shares_of(self._world.size())
        copied = [share.copied() for share in world]
        held = [each.shares.get(step, ()) for each in kept]
        # A rank's own share comes first, and is what its objects hold: its copy of the same one would not do.
        if all(has[:1] == (share,) and copy in has for share, copy, has in zip(world, copied, held, strict=True)):
            return False
        copies: dict[str, Shards] = {}
        for name, sharded in objects.items():
            own = {
                (content := ShardedContent.of(tree["objects"][name])).share: content.shards
                for at, tree in commits
                if at == step
            }
            own |= {each.share: each.shards[name] for each in self._generations if each.step == step}
            self._place(name, sharded, held, own)
            if len(world) > 1:
                outline = sharded.content.shards
                copies[name] = self._received(
                    sharded, held=held, wanted=copied, own=own, outline=outline, label=f"move.copy.{name}"
                )
        self._take_spare()
        if len(world) > 1:
            self._generations.append(_Copies(step=step, share=copied[self._world.rank()], shards=copies))
        return True

    def spread(self, objects: Objects, root: int) -> None:
        """Give each rank its share of what the root has: a durable checkpoint, or nothing. A collective operation.

        Where the root has a share like all others, each keeps its own.
        """
        for name, sharded in objects.items():
            content = sharded.content
            shares = self._world.allgather_object(content.share, name=f"hvd_elastic.share.{name}")
            if shares[root] == WHOLE:
                held = [[WHOLE] if rank == root else [] for rank in range(self._world.size())]
            else:
                held = [[share] for share in shares]
                if not sharded.begins_divided or any(lost_elements(length, held) for length in sharded.lengths):
                    raise ShardingError(
                        f"state.{name}: steps were taken before elastic.run, and each rank knows its own share of them "
                        "alone. Begin training in the function that elastic.run calls"
                    )
            has = content.share in held[self._world.rank()]
            self._place(name, sharded, held, {content.share: on_host(content.shards)} if has else {})

    def _place(self, name: str, sharded: ShardedObject, held: Holdings, own: Mapping[Share, Shards]) -> None:
        world, content = shares_of(self._world.size()), sharded.content
        shards = self._received(sharded, held=held, wanted=world, own=own, outline=content.shards, label=f"move.{name}")
        sharded.place(ShardedContent(share=world[self._world.rank()], shards=shards, numbers=content.numbers))

    def _received(
        self,
        sharded: ShardedObject,
        *,
        held: Holdings,
        wanted: Sequence[Share],
        own: Mapping[Share, Shards],
        outline: Shards,
        spare: Shards | None = None,
        label: str,
    ) -> Shards:
        """Return this rank's wanted share of what all hold, in host memory: in `spare` as far as that fits."""
        lengths = sharded.lengths
        into = reused(spare, empty_shards(outline, lengths, wanted[self._world.rank()]))
        redistribute(
            lengths, held=held, wanted=wanted, own=own, outline=outline, into=into, label=label, world=self._world
        )
        return into
