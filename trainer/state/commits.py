"""The last commit: in this process' memory, and from there to the durable tier."""

from collections.abc import Set as AbstractSet

from hvd_elastic.trainer.elastic import departure
from hvd_elastic.trainer.state.durable_tier import DurableTier
from hvd_elastic.trainer.state.host_memory import HostMemory, Tree


class Commits:
    """Both tiers of one process. The durable one does nothing but on the job's writer, rank 0."""

    def __init__(self, *, checkpoint: str | None, overlap: bool) -> None:
        self.memory = HostMemory(overlap=overlap)
        self.durable = DurableTier(checkpoint)
        self.last: Tree = None
        """The last commit as a tree; None: this process holds none."""
        self._offer_waits = False
        self._secured = self._tried = -1

    @property
    def step(self) -> int:
        """Of the last commit; 0: this process holds none."""
        return int(self.last["progress"]["commits"]) if self.last is not None else 0

    def save(self, tree: Tree, *, owned: AbstractSet[int]) -> None:
        """Make `tree` the last commit. `owned`: addresses of the tensors that only an optimizer's step changes."""
        self._hand_over()
        self.last = self.memory.save(tree, guarded=lambda tensor: tensor.data_ptr() in owned, held=self.durable.busy)
        if self.durable.due(self.step):
            self.offer()

    def offer(self) -> None:
        """Have the last commit stored in the background, or the next one where this is still being copied."""
        self._offer_waits = True
        if self.memory.settled:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the durable tier the commit that waits for it, once that is whole."""
        if self._offer_waits:
            self._offer_waits = False
            self.memory.settle()
            self.memory.lend()
            self.durable.offer(self.last, step=self.step, size=self.last["progress"]["size"])

    @property
    def secured(self) -> bool:
        """Whether the last commit is known to be durable, whoever wrote it."""
        return self.last is not None and self.step in (self._secured, self.durable.stored_step)

    def note_secured(self) -> None:
        """The last commit is durable."""
        self._secured = self.step

    def secure(self, reason: str) -> bool:
        """Make the last commit durable before this returns, as far as the pod's grace allows; whether it is.

        Each commit is tried once; a save that is late may end later.
        """
        if not self.secured and self._tried != self.step and self.durable.writes:
            self._tried = self.step
            self.memory.settle()
            self.memory.lend()
            self._offer_waits = False
            size, limit = self.last["progress"]["size"], departure.checkpoint_seconds()
            self.durable.insist(self.last, step=self.step, size=size, reason=reason, within_seconds=limit)
        return self.secured
