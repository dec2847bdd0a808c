"""The commits of all workers together, where each has its share of the state. All here is collective."""

import logging

from hvd_elastic.trainer.collectives.any_rank import any_rank
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.sharding.commit_choice import Kept
from hvd_elastic.trainer.sharding.committed_shares import CommittedShares, SharesLostError
from hvd_elastic.trainer.state.agreement import agree
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.durable.durable_tier import DurableTier
from hvd_elastic.trainer.state.memory.host_memory import HostMemory
from hvd_elastic.trainer.state.state_objects import StateObjects

logger = logging.getLogger(__name__)


class ShardedCommits:
    """Copies, moves and gathers the shares of commits. Where nothing is sharded, there is nothing of that to do."""

    def __init__(self, objects: StateObjects, memory: HostMemory, commits: Commits, durable: DurableTier) -> None:
        self._objects, self._memory, self._commits, self._durable = objects, memory, commits, durable
        self._shares = CommittedShares()

    @property
    def are_lost(self) -> bool:
        """Whether no commit is whole any more: only a durable checkpoint is left to go on from."""
        return self._shares.are_lost

    def mark_restored(self) -> None:
        self._shares.are_lost = False

    def agree_on_commit(self) -> tuple[list[Kept], bool]:
        """Make the newest commit of which every share is left the last one, or hold none. A world begins.

        Returns:
            By rank, what it has of that commit; and whether the state must be restored from it.
        """
        self._objects.divide_anew()
        sharded = self._objects.sharded()
        if not sharded:
            return [], False
        chosen, kept = self._shares.agree_on_commit(sharded, self._commits.kept())
        if chosen is None:
            self._memory.forget()
            return kept, False
        undoes = self._commits.step > chosen
        if undoes:
            self._memory.go_back()
            if self._commits.step > chosen:
                self._memory.forget()
        return kept, undoes

    def move(self, step: int | None, root: int, kept: list[Kept]) -> bool:
        """Give each rank its share of the state that all hold now. Returns whether any share was moved.

        Args:
            step: that of the commit to go on from; None: the root has loaded what the job begins with.
            root: a rank that has it.
            kept: by rank, what it has of the commit.

        Raises:
            SharesLostError: on all workers, if shares were lost and there was no durable checkpoint.
        """
        sharded = self._objects.sharded()
        if not sharded:
            return False
        if step is not None:
            return self._shares.move(sharded, self._commits.kept(), step, kept)
        self._check_found()
        self._shares.spread(sharded, root)
        return True

    def _check_found(self) -> None:
        are_lost, place = agree((self._shares.are_lost, self._durable.settings.place))
        self._shares.are_lost = False
        if are_lost:
            where = f"{place} has no checkpoint" if place else "the job has no durable tier: give it `checkpoint`"
            raise SharesLostError(
                f"a share of the state and its copy were lost together, and {where}. Training cannot go on"
                " from what is left; started again, the job begins anew"
            )

    def copy(self) -> None:
        """Give the shares of the last commit to a second rank."""
        if sharded := self._objects.sharded():
            self._memory.wait()
            self._shares.copy(sharded, self._commits.last, self._commits.step)

    def gather(self, *, store: bool) -> None:
        """Give rank 0 all shares of the last commit. `store`: it stores them in the background."""
        committed = self._commits.last["objects"]
        whole = {name: each.gathered(committed[name]) for name, each in self._objects.sharded().items()}
        if WORLD.rank() == 0:
            self._commits.add_gathered(whole, store=store)

    def _gather_unstored(self) -> None:
        if self._commits.gathers and agree(self._durable.is_writer and not self._commits.is_durable):
            self.gather(store=False)

    def store(self, reason: str) -> None:
        """Make the last commit durable. All workers wait and learn the outcome, so that one that must leave can."""
        self._gather_unstored()
        durable = any_rank(self._commits.save_to_store_sync(reason))
        if durable:
            self._commits.mark_durable()
        if WORLD.rank() == 0 and self._durable.settings.configured:
            done = "done" if durable else "not done"
            logger.info("durable checkpoint on request at step %d: %s", self._commits.step, done)

    def store_final(self) -> None:
        """Make the last commit durable at the end of training. Only the writer waits."""
        self._gather_unstored()
        self._commits.save_final()
