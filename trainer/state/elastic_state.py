"""`elastic.State`: an `hvd.elastic` state that also counts samples and is durable.

A commit is one tree: the state of every object, the plain values, and the progress (epoch, positions, counters). It
lives in host memory (`memory`), goes to the durable tier at its interval (`durable`), and reaches newcomers by
broadcast (`broadcast`). Because the position in the data is part of it, going back to a commit goes back in the data
too.
"""

import logging
import time
from typing import Any

import horovod.torch as hvd
import torch
from horovod.common.elastic import State as HorovodState
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch.elastic.state import TorchState

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.data.batch_policy import LearningRatePolicy
from hvd_elastic.trainer.data.batches import Batches
from hvd_elastic.trainer.data.epochs import TRAIN, Epochs
from hvd_elastic.trainer.elastic import departure, horovod_patches
from hvd_elastic.trainer.state.agreement import Agreement, Danger
from hvd_elastic.trainer.state.broadcast import broadcast
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.host_memory import Tree
from hvd_elastic.trainer.state.optimizer_hooks import OptimizerHooks
from hvd_elastic.trainer.state.progress import Progress
from hvd_elastic.trainer.state.state_objects import StateObjects
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.heartbeat import CheckpointRequest, HeartbeatWriter

logger = logging.getLogger(__name__)


class StateError(HvdElasticError):
    """A State is used in a way that cannot work; the message says which and the way out."""

    exit_code = Exit.SCRIPT_MISTAKE


class State(Epochs, TorchState):  # type: ignore[misc]
    """The state of a training job, shared by all its workers.

    Every keyword is an attribute. What has `state_dict()` and `load_state_dict()` (models, optimizers, schedulers,
    scalers, EMA copies, samplers) goes by these; everything else is a plain value that is copied. `epoch` is always
    there.

    Args:
        model: the model, if it goes by that name.
        optimizer: what `hvd.DistributedOptimizer` returned.
        checkpoint: URL of the durable tier (`s3://bucket/prefix`, `file:///path`); the job's own
        (`contract.ENV_CHECKPOINT`)
            comes first.
        overlap: copy parameters while the next step computes. Off: a commit returns when all is copied.
        values: any further objects and plain values.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        checkpoint: str | None = None,
        overlap: bool = True,
        **values: Any,
    ) -> None:
        horovod_patches.init()
        self._handlers: dict[str, Any] = {}
        given = {"epoch": 0, "model": model, "optimizer": optimizer, **values}
        reserved = sorted(name for name in given if name.startswith("_") or hasattr(type(self), name))
        if reserved:
            raise StateError(f"State: {', '.join(reserved)}: taken by State itself; use other names")
        for name, value in given.items():
            setattr(self, name, value)
        self._contents = StateObjects(self, given)
        HorovodState.__init__(self, bcast_object=hvd.broadcast_object, get_rank=hvd.rank)
        self._progress = Progress()
        self._commits = Commits(checkpoint=checkpoint, overlap=overlap)
        self._endangered = False
        self._heartbeat, self._request = HeartbeatWriter(), CheckpointRequest()
        self._logged: dict[str, object] = {}
        self._last_commit = time.monotonic()
        self._feed = Batches()
        self._rate_wish: dict[str, Any] = {}
        self._rate_policy = LearningRatePolicy.choose()
        optimizers = [value for value in given.values() if isinstance(value, torch.optim.Optimizer)]
        self._stepping = OptimizerHooks(optimizers, before=self._before_step, after=self._after_step)

    # --- Committing --------------------------------------------------------------------------------------------------

    def commit(self, **logged: object) -> None:
        """Make the present state the one that is gone back to, and leave for another world if hosts came or went.

        Call it after the optimizer's step. `logged` (loss ...) goes into the step's event.

        Raises:
            HostsUpdatedInterrupt: for `elastic.run`; let it pass.
            TornCommitError: see `overlap`.
        """
        self._progress.commits += 1
        self.save()
        self._report({**self._logged, **logged})
        self._logged = {}
        self._agree(saved=True)

    def check_host_updates(self) -> None:
        """Leave for another world if hosts came or went; commits first if so."""
        self._agree(saved=False)

    def log(self, **fields: object) -> None:
        """Add fields to the event of the next commit."""
        self._logged.update(fields)

    def save(self) -> None:
        """Copy to host memory; hands the copy to the durable tier when its interval is over."""
        self._commits.save(self._tree(), owned=self._stepping.owned())

    def restore(self) -> None:
        """Go back to the last commit. Raises TornCommitError: there is none that is whole."""
        self._feed.forget()
        self._stepping.abandon()
        committed = self._commits.last
        if committed is None:
            return
        self._commits.memory.settle()
        undone, self._progress = self._progress, Progress.from_state_dict(committed["progress"])
        self._progress.undone_since(undone)
        self._contents.load(committed)

    @property
    def step_count(self) -> int:
        """Commits since the job began, over all processes that ever held the state."""
        return self._progress.commits

    # --- Worlds ------------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Give every worker the newest commit that any of them holds, or the newest durable one where none does."""
        self._commits.memory.settle()
        held = self._progress.commits + 1 if self._commits.last is not None else 0
        everyone = hvd.allgather(torch.tensor([held], dtype=torch.int64), name="hvd_elastic.held").tolist()
        newest = max(everyone)
        root = everyone.index(newest)
        if newest == 0:
            self._begin()
        if newest == 0 or any(each != newest for each in everyone):
            self._receive(root, fresh=held != newest or newest == 0)
        self._contents.reset_samplers()
        self._enter_world()

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Remember it until the next commit; called in Horovod's thread."""
        self._host_messages.put((timestamp, update_res))

    def dispensable(self) -> bool:
        """Whether this process, which waits for its next world, may leave: its pod ends and its last commit is durable.

        The writer makes it durable if it is not: nobody else may be left to do so.
        """
        return departure.announced() and self._commits.secure("this pod is about to end")

    # --- Learning rate -----------------------------------------------------------------------------------------------

    def scale_learning_rate(self, rule: str, *, base_size: int = 1, warmup_steps: int = 0) -> None:
        """Have the learning rate follow the world size; the job's rule (`contract.ENV_LEARNING_RATE`) comes first.

        Args:
            rule: `constant`, `linear` or `sqrt`.
            base_size: the number of workers that the script's own rate is meant for.
            warmup_steps: optimizer steps over which it rises after a growth.

        Raises:
            BatchError: no such rule.
        """
        self._rate_wish = {"rule": rule, "base_size": base_size, "warmup_steps": warmup_steps}
        self._rate_policy = LearningRatePolicy.choose(**self._rate_wish)

    @property
    def learning_rate_factor(self) -> float:
        """The factor on the script's learning rate in the next optimizer step."""
        progress = self._progress
        return self._rate_policy.factor(
            size=progress.size or hvd.size(),
            start=progress.factor_start,
            steps=progress.optimizer_steps - progress.resized_at,
        )

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _tree(self) -> Tree:
        return {**self._contents.tree(), "progress": self._progress.state_dict()}

    def _begin(self) -> None:
        """Nobody holds a state: rank 0 goes on from the newest durable checkpoint, or from the script's own
        beginning.
        """
        if hvd.rank() != 0:
            return
        self._progress.lineage = f"{time.time_ns():x}-{id(self):x}"
        self._commits.durable.open(self._progress.lineage)
        found = self._commits.durable.newest()
        if found is not None:
            lineage = self._progress.lineage
            self._progress = Progress.from_state_dict(found["progress"])
            self._progress.lineage = lineage
            self._contents.load(found)

    def _receive(self, root: int, *, fresh: bool) -> None:
        present = self._tree()
        tree = broadcast(present, root)
        if hvd.rank() != root:
            self._progress = Progress.from_state_dict(tree["progress"])
            self._contents.load(tree, present=present)
        if fresh:
            self.save()
        if hvd.rank() == 0:
            self._commits.durable.refuse(self._commits.last)

    def _enter_world(self) -> None:
        progress = self._progress
        self._endangered = False
        self._rate_policy = LearningRatePolicy.choose(**self._rate_wish)  # a solo standby has the job's environment now
        if progress.size != hvd.size():
            progress.factor_start = self.learning_rate_factor if progress.size else self._rate_policy.target(hvd.size())
            progress.resized_at = progress.optimizer_steps
            progress.size = hvd.size()
        if hvd.rank() == 0:
            self._commits.durable.keep_open(progress.lineage)
        else:
            self._commits.durable.close()

    def _agree(self, *, saved: bool) -> None:
        hosts, stays = not self._host_messages.empty(), not departure.announced()
        word = Agreement(hosts=hosts, danger=self._danger(), stays=stays).agreed()
        if (word.hosts or word.danger) and not saved:
            self._progress.commits += 1
            self.save()
        self._endangered |= word.danger is Danger.JOB
        if word.must_secure(endangered=self._endangered):
            self._secure()
        elif word.danger:  # others hold the state: nobody waits for the store
            self._request.take()
            self._commits.offer()
        if word.hosts:
            while not self._host_messages.empty():
                self._host_messages.get()
            raise HostsUpdatedInterrupt(skip_sync=False)

    def _danger(self) -> Danger:
        if hvd.local_rank() != 0 or not self._request.pending():
            return Danger.NONE
        return Danger.POD if departure.announced() else Danger.JOB

    def _secure(self) -> None:
        """Make the last commit durable. All wait for it and know of it: whoever has to leave then can."""
        reason = self._request.take() if hvd.local_rank() == 0 else ""
        secured = self._commits.secure(reason or "request")
        if hvd.size() > 1:
            secured = bool(hvd.allreduce(torch.tensor([int(secured)]), op=hvd.Max, name="hvd_elastic.secured").item())
        if secured:
            self._commits.note_secured()
        if hvd.rank() == 0 and self._commits.durable.configured:
            done = "done" if secured else "not done"
            logger.info("durable checkpoint on request at step %d: %s", self._commits.step, done)

    def _report(self, logged: dict[str, object]) -> None:
        now = time.monotonic()
        rank, size, step = hvd.rank(), hvd.size(), self._progress.commits
        self._heartbeat.beat(step=step, rank=rank, size=size)
        if events.heard():
            cursor = self._progress.cursors.get(TRAIN)
            samples = cursor.position if cursor is not None else None
            seconds = round(now - self._last_commit, 6)
            self._emit(events.Kind.STEP, epoch=self.epoch, samples=samples, seconds=seconds, **logged)
        self._last_commit = now

    def _before_step(self) -> float:
        self._commits.memory.release()
        return self.learning_rate_factor

    def _after_step(self) -> None:
        self._progress.optimizer_steps += 1
