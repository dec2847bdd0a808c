"""The last commit: in this process's memory, and from there in the durable tier."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from hvd_elastic.policy.checkpoint_interval import LossHistory
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.trainer.data.sample_certificate import Certificate
from hvd_elastic.trainer.elastic import departure
from hvd_elastic.trainer.state.durable.durable_tier import INTERVAL, DurableTier
from hvd_elastic.trainer.state.memory.host_memory import HostMemory
from hvd_elastic.trainer.state.state_tree import Tree

logger = logging.getLogger(__name__)

FINAL_SECONDS: Final = 300.0
"""How long the end of training waits for its last commit to be durable."""

FINAL_BACKOFF: Final = Backoff(first_seconds=1.0, most_seconds=10.0)
"""Between two attempts at the end of training, each of which retries its own requests."""


class Commits:
    """What one process holds in both tiers. The durable one is active only on the job's writer, rank 0."""

    def __init__(
        self,
        memory: HostMemory,
        durable: DurableTier,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.memory, self.durable = memory, durable
        self._clock, self._sleep = clock, sleep
        self._save_pending = False
        self.gathers = False
        """What is stored of the last commit has parts of other ranks."""
        self._gathered: tuple[int, Mapping[str, Tree]] | None = None
        self.compares = False
        """A commit is stored at an interval only once all workers were compared after it."""
        self._compared_step = -1
        self._is_complete = True
        """Whether nothing will change the last commit any more."""
        self._durable_step = self._attempted_step = self._final_step = -1
        self._last_lap: float | None = None

    @property
    def last(self) -> Tree:
        """The last commit as a tree; None if this process holds none."""
        return self.memory.last

    @property
    def step(self) -> int:
        """Step of the last commit; 0 if this process holds none."""
        return int(self.last["progress"]["commits"]) if self.last is not None else 0

    @property
    def history(self) -> LossHistory:
        """What the last commit says of the job's time and losses."""
        progress = self.last["progress"] if self.last is not None else {}
        return LossHistory(trained_seconds=progress.get("trained_seconds", 0.0), losses=progress.get("full_losses", 0))

    def resume(self) -> None:
        """Training begins or goes on: what was before counts to no step."""
        self._last_lap = None
        self.durable.resume()

    def lap(self) -> float:
        """Seconds of training since the last call; 0 for the first one after `resume`."""
        before, self._last_lap = self._last_lap, self._clock()
        if before is None:
            return 0.0
        self.durable.note_step(self._last_lap - before)
        return self._last_lap - before

    def save_to_memory(
        self, tree: Tree, *, owned: Callable[[], AbstractSet[int]], gathers: bool = False, is_complete: bool = True
    ) -> None:
        """Make `tree` the last commit, and start a durable save if one is due.

        Args:
            tree: the state to copy.
            owned: returns the addresses of the tensors that change only in an optimizer's step.
            gathers: it has parts of sharded optimizers: it is only stored after `add_gathered`. Default False.
            is_complete: False: `complete` is to follow, and no save of it starts before. Default True.
        """
        self._start_pending_save()
        self.gathers, self._gathered = gathers, None  # a save that reads it keeps it
        addresses = owned() if self.memory.overlap else frozenset()
        self.memory.save(tree, deferrable=lambda tensor: tensor.data_ptr() in addresses, retained=self.durable.busy)
        self._is_complete = is_complete
        if self.durable.due(self.step, self.history):
            self.save_to_store_async()

    def complete(self, certificate: Certificate | None) -> None:
        """Let the last commit's certificate, if it has one, tell of its own samples; nothing changes it after that.

        A durable save that is due starts here. One that was handed over already is left alone: its world was lost
        before this was known.
        """
        if self._is_complete:
            return
        if certificate is not None:
            certificate.tell(self.last["progress"]["data"]["certificate"])
        self._is_complete = True
        if self._save_pending:
            self.save_to_store_async()

    def save_to_store_async(self) -> None:
        """Store a commit in the background: this one, or the first one after its copy and the save before are done."""
        self._save_pending = self.durable.is_writer
        if self.memory.done:
            self._start_pending_save()

    def _start_pending_save(self) -> None:
        """Give the last commit to the durable tier if one is pending and the store is free: nobody waits for it."""
        is_ready = self._is_complete and self._is_gathered and self._is_compared
        if self._save_pending and self.durable.idle and is_ready:
            self._hand_over(INTERVAL)

    @property
    def wants_parts(self) -> bool:
        """Whether the last commit would be stored now if the parts of other ranks were here."""
        return self.gathers and self._save_pending and self.durable.idle

    @property
    def wants_comparison(self) -> bool:
        """Whether the last commit would be stored now if all workers had been compared after it."""
        return self._save_pending and self.durable.idle and not self._is_compared

    def mark_compared(self) -> None:
        """All workers hold the last commit alike. It is stored if a save is pending."""
        self._compared_step = self.step
        if self._save_pending:
            self.save_to_store_async()

    @property
    def _is_compared(self) -> bool:
        return not self.compares or self._compared_step == self.step

    def add_gathered(self, objects: Mapping[str, Tree], *, store: bool) -> None:
        """Take what the last commit lacks of other ranks, by the name of the object; and store it, if `store`."""
        self._gathered = self.step, objects
        if store:
            self.save_to_store_async()

    @property
    def _is_gathered(self) -> bool:
        return not self.gathers or (self._gathered is not None and self._gathered[0] == self.step)

    @property
    def _to_store(self) -> Tree:
        """The last commit as it is stored: with whole objects in place of those of which this rank has a part."""
        tree = self.memory.typed
        if not self.gathers or self._gathered is None:
            return tree
        return {**tree, "objects": {**tree["objects"], **self._gathered[1]}}

    def kept(self) -> list[tuple[int, Tree]]:
        """Return the commits that this process holds, the last one first, each with its step."""
        return [(int(tree["progress"]["commits"]), tree) for tree in self.memory.kept]

    def _hand_over(self, reason: str) -> None:
        """Store the last commit. Its buffers are kept from here on, so no save before it may still read others."""
        self._save_pending, self._is_complete = False, True
        self.memory.wait()
        self.memory.retain()
        self.durable.save(self._to_store, step=self.step, size=self.last["progress"]["size"], reason=reason)

    @property
    def is_durable(self) -> bool:
        """Whether the last commit is known to be durable, whichever process wrote it."""
        return self.last is not None and self.step in (self._durable_step, self.durable.durable_step)

    def mark_durable(self) -> None:
        self._durable_step = self.step

    def save_to_store_sync(self, reason: str) -> bool:
        """Make the last commit durable before returning, within the pod's grace period. Returns whether it is durable.

        A save in progress completes first. Each commit is tried once. If the time is over before it could begin, the
        first commit after the save in progress is stored in the background.
        """
        may_save = self.last is not None and self.durable.is_writer and self._is_gathered
        if may_save and not self.is_durable and self._attempted_step != self.step:
            self._attempted_step = self.step
            self._save_within(departure.checkpoint_seconds(), reason)
        return self.is_durable

    def save_final(self) -> None:
        """Make the last commit durable at the end of training: no later one may follow. Only the writer waits.

        A store that is away is asked again for FINAL_SECONDS. Then a warning says that the commit is not durable.

        Raises:
            FencedError: a newer writer owns the prefix: what was trained since then is nowhere, and no success.
        """
        if self.last is None or not self.durable.is_writer or self.is_durable or self._final_step == self.step:
            return
        if not self._is_gathered:
            return
        self._final_step = self.step
        deadline = self._clock() + FINAL_SECONDS
        for failures in itertools.count(1):
            self._save_within(deadline - self._clock(), "end of training")
            rest = deadline - self._clock()
            if self.is_durable or rest <= 0 or not self.durable.failure_may_pass:
                break
            self._sleep(min(rest, FINAL_BACKOFF.with_jitter(failures, least=0.5)))
        if not self.is_durable:
            logger.warning("the last commit of training, step %d, is not durable", self.step)
            self.durable.raise_if_fenced()

    def _save_within(self, seconds: float, reason: str) -> None:
        deadline = self._clock() + seconds
        self.durable.flush(seconds)
        if self.is_durable:  # it was this commit that was being stored
            return
        if not self.durable.wait_idle(deadline - self._clock()):
            self._save_pending = True
            logger.warning("step %d is not durable: the save before it did not end in %.0f s", self.step, seconds)
            return
        self._hand_over(reason)
        self.durable.flush(deadline - self._clock())
