"""The last commit: in this process's memory, and from there in the durable tier."""

from collections.abc import Set as AbstractSet

from hvd_elastic.trainer.elastic import departure
from hvd_elastic.trainer.state.durable_tier import DEFAULT_KEEP, DurableTier
from hvd_elastic.trainer.state.host_memory import HostMemory
from hvd_elastic.trainer.state.state_tree import Tree


class Commits:
    """Both tiers of one process. The durable tier is active only on the job's writer, rank 0."""

    def __init__(self, *, checkpoint: str | None, overlap: bool, keep: int = DEFAULT_KEEP) -> None:
        self.memory = HostMemory(overlap=overlap)
        self.durable = DurableTier(checkpoint, keep=keep)
        self._save_pending = False
        self._durable_step = self._attempted_step = -1

    @property
    def last(self) -> Tree:
        """The last commit as a tree; None if this process holds none."""
        return self.memory.last

    @property
    def step(self) -> int:
        """Step of the last commit; 0 if this process holds none."""
        return int(self.last["progress"]["commits"]) if self.last is not None else 0

    def save_to_memory(self, tree: Tree, *, owned: AbstractSet[int]) -> None:
        """Make `tree` the last commit, and start a durable save if one is due.

        Args:
            tree: the state to copy.
            owned: addresses of the tensors that change only in an optimizer's step.
        """
        self._start_pending_save()
        self.memory.save(tree, deferrable=lambda tensor: tensor.data_ptr() in owned, retained=self.durable.busy)
        if self.durable.due(self.step):
            self.save_to_store_async()

    def save_to_store_async(self) -> None:
        """Store the last commit in the background. If it is still being copied, the save starts at the next commit."""
        self._save_pending = True
        if self.memory.done:
            self._start_pending_save()

    def _start_pending_save(self) -> None:
        """Give the pending commit to the durable tier, once its copy is complete."""
        if self._save_pending:
            self._save_pending = False
            self.memory.wait()
            self.memory.retain()
            self.durable.save_async(self.last, step=self.step, size=self.last["progress"]["size"])

    @property
    def is_durable(self) -> bool:
        """Whether the last commit is known to be durable, whichever process wrote it."""
        return self.last is not None and self.step in (self._durable_step, self.durable.durable_step)

    def mark_durable(self) -> None:
        """Record that the last commit is durable."""
        self._durable_step = self.step

    def save_to_store_sync(self, reason: str) -> bool:
        """Make the last commit durable before returning, within the pod's grace period. Returns whether it is durable.

        Each commit is tried once. A save that misses the time limit may still complete later.
        """
        if not self.is_durable and self._attempted_step != self.step and self.durable.is_writer:
            self._attempted_step = self.step
            self.memory.wait()
            self.memory.retain()
            self._save_pending = False
            size, limit = self.last["progress"]["size"], departure.checkpoint_seconds()
            self.durable.save_sync(self.last, step=self.step, size=size, reason=reason, timeout_seconds=limit)
        return self.is_durable
