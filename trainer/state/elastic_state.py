"""`elastic.State`: an `hvd.elastic` state that also counts samples and makes commits durable.

A commit is one tree: the state of every object, the plain values, and the progress (epoch, positions, counters). It
lives in host memory (`host_memory`), is stored durably at an interval (`durable_tier`), and reaches new workers by
broadcast (`broadcast`). The position in the data is part of it, so going back to a commit also goes back in the data.
"""

import logging
import os
import time
from collections.abc import Collection
from typing import Any

import torch

from hvd_elastic.trainer.collectives.errors import HostsUpdatedInterrupt
from hvd_elastic.trainer.collectives.horovod_classes import TorchState, init_torch_state
from hvd_elastic.trainer.collectives.horovod_functions import HOROVOD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from hvd_elastic.trainer.data.batch_policy import LearningRatePolicy
from hvd_elastic.trainer.data.batches import Batches
from hvd_elastic.trainer.data.progress import TRAIN, Progress, progress_words, upgrade
from hvd_elastic.trainer.data.randomness import Randomness
from hvd_elastic.trainer.elastic import departure, horovod_patches
from hvd_elastic.trainer.elastic.stalls import stall_watch
from hvd_elastic.trainer.sharding.commit_choice import Kept
from hvd_elastic.trainer.sharding.committed_shares import CommittedShares, SharesLostError
from hvd_elastic.trainer.sharding.optimizer_content import outlined
from hvd_elastic.trainer.state.agreement import Agreement, RiskLevel, agree
from hvd_elastic.trainer.state.broadcast import broadcast
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.durable.durable_tier import DEFAULT_KEEP
from hvd_elastic.trainer.state.durable.warm_start import WarmStart
from hvd_elastic.trainer.state.epochs import EpochsMixin
from hvd_elastic.trainer.state.optimizer_hooks import OptimizerHooks
from hvd_elastic.trainer.state.state_objects import StateError, StateObjects
from hvd_elastic.trainer.state.state_tree import Tree
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.console import say
from hvd_elastic.trainer.telemetry.heartbeat import CheckpointRequest, HeartbeatWriter

logger = logging.getLogger(__name__)


class State(EpochsMixin, TorchState):  # type: ignore[misc]
    """The state of a training job, shared by all its workers.

    Every keyword argument becomes an attribute. Objects with `state_dict()` and `load_state_dict()` (models,
    optimizers, schedulers, scalers, EMA copies, samplers) are saved and restored through these methods. Everything else
    is a plain value, which is deep-copied. The attribute `epoch` always exists and starts at 0.

    Example:
        ```python
        state = elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, best_accuracy=0.0)

        @elastic.run
        def train(state):
            for state.epoch in state.remaining_epochs(20):
                for batch in state.batches(dataset, batch_size=64):
                    ...
                    optimizer.step()
                    state.commit(loss=loss)

        train(state)
        ```

    Args:
        model: the model. Default None, if the models have other names in `values`.
        optimizer: the optimizer that `hvd.DistributedOptimizer` returned. Default None.
        checkpoint: URL of the durable tier: `s3://bucket/prefix` or `file:///path`. The job's own URL
            (`HVD_ELASTIC_CHECKPOINT`) takes precedence. Default None: no durable tier, unless the job names one.
        checkpoint_keep: number of durable checkpoints that are kept. The job's own number (`checkpoint.keep`) takes
            precedence. Default 3.
        allow_missing: names that either the State or the checkpoint it resumes from may lack. A name that the
            checkpoint lacks keeps what the script gave; one that the State lacks is left out; and the checkpoints of
            the former state are never deleted. Default none: any other name is an error.
        overlap: copy parameters and optimizer state while the next step computes. Only for a script that changes them
            in an optimizer's step alone, and never in between by other means, such as an EMA copy that is swapped in.
            Default False: everything is copied when `commit()` returns.
        seeding: seed the global random number generators (torch, numpy, Python) for each sample and each batch of
            `batches`, and make their state part of each commit, so that a resumed run draws what the undisturbed one
            would have drawn. Default True. With False they are left alone.
        values: further objects and plain values, by name. A name must not start with `_` and must not be one that State
            itself uses.

    Raises:
        StateError: a name in `values` cannot be used.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        checkpoint: str | None = None,
        checkpoint_keep: int = DEFAULT_KEEP,
        allow_missing: Collection[str] = (),
        overlap: bool = False,
        seeding: bool = True,
        **values: Any,
    ) -> None:
        horovod_patches.init()
        self._handlers: dict[str, Any] = {}
        given = {"epoch": 0, "model": model, "optimizer": optimizer, **values}
        reserved = sorted(name for name in given if name.startswith("_") or hasattr(type(self), name))
        if reserved:
            raise StateError(f"State: {', '.join(reserved)}: taken by State itself; use other names")
        self._optimizer_hooks = OptimizerHooks(before=self._before_step, after=self._after_step)
        self._state_objects = StateObjects(self, given, optional=("model", "optimizer"))
        for name, value in given.items():
            setattr(self, name, value)
        init_torch_state(self)
        self._progress = Progress()
        self._randomness = Randomness(enabled=seeding)
        self._commits = Commits(
            checkpoint=checkpoint, overlap=overlap, keep=checkpoint_keep, allow_missing=allow_missing
        )
        self._shares = CommittedShares()
        self._job_was_at_risk = False
        self._restored_step: int | None = None
        self._heartbeat, self._request = HeartbeatWriter(), CheckpointRequest()
        self._logged: dict[str, object] = {}
        self._last_commit = time.monotonic()
        self._batches = Batches()
        self._rate_arguments: dict[str, Any] = {}
        self._rate_policy = LearningRatePolicy.choose()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. An optimizer that becomes part of the state gets the hooks."""
        super().__setattr__(name, value)
        if isinstance(value, torch.optim.Optimizer) and name in self._state_objects:
            self._optimizer_hooks.watch([value])

    # --- Committing --------------------------------------------------------------------------------------------------

    def commit(self, **logged: object) -> None:
        """Save the present state to host memory, and stop for a new world if hosts were added or removed.

        After a failure, training goes back to the last commit. Call it after the optimizer's step, on every worker.
        Between two passes over data, and after the last one of an epoch, it is deferred: see `remaining_epochs`.

        Args:
            logged: values for the event of this step, by name: `loss=loss`. Default none.

        Raises:
            HostsUpdatedInterrupt: hosts were added or removed. `elastic.run` handles it; do not catch it.
            StateError: there are gradients that no optimizer's step has used.
            TornCommitError: a tensor was changed while it was being copied for the previous commit (see `overlap`).
        """
        self._check_between_steps()
        self._logged.update(logged)
        self._batches.hints.commit(self._counts)
        if self._batches.account.may_commit():
            self._commit_now()
        else:
            self._batches.defer_commit()
            self._agree(saved=False)

    def check_host_updates(self) -> None:
        """Stop for a new world if hosts were added or removed; commits first if so. Call it on every worker.

        Raises:
            HostsUpdatedInterrupt: hosts were added or removed. `elastic.run` handles it; do not catch it.
            StateError: see `commit`.
            TornCommitError: see `commit`.
        """
        self._check_between_steps()
        self._agree(saved=False)

    def log(self, **fields: object) -> None:
        """Add values to the event of the next commit.

        Args:
            fields: values by name, such as `loss=loss`. A tensor of one element is written as a number.
        """
        self._logged.update(fields)

    def save(self) -> None:
        """Copy the state to host memory, and store it in the background if the checkpoint interval is over.

        Called by `commit()`; a script does not need it.

        Raises:
            TornCommitError: see `commit`.
        """
        self._progress.data = self._batches.account.commit()
        self._progress.trained_seconds += self._commits.lap()
        self._commits.gathers = bool(self._state_objects.sharded())
        owned = self._optimizer_hooks.owned_addresses() if self._commits.memory.overlap else frozenset()
        self._commits.save_to_memory(self._tree(), owned=owned)

    def restore(self) -> None:
        """Go back to the last commit. Called by `elastic.run` after a failure.

        Gradients are dropped: they are those of an undone step. If there is no commit, nothing else is changed.

        Raises:
            TornCommitError: the last commit is not whole.
        """
        self._commits.durable.stop_opening()
        undone = self._batches.account.position
        self._batches.go_to(undone)
        self._optimizer_hooks.reset_after_failure()
        self._logged = {}
        self._drop_gradients()
        committed = self._commits.last
        if committed is None:
            return
        self._commits.memory.wait()
        self._go_to(Progress.from_state_dict(committed["progress"]))
        self._progress.data.count_repeated(undone)
        self._state_objects.load(committed, kinds=self._commits.memory.kinds)
        self._randomness.load(committed["randomness"])

    # --- Worlds ------------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Give every worker the newest commit that any worker holds, or else the newest durable checkpoint.

        A collective operation, called by `elastic.run` when a world begins.

        Raises:
            CheckpointError: rank 0 could not open the durable tier or read its checkpoints.
            IncompatibleError: the newest checkpoint has other names than this State.
            UnstorableError: a value of the state could only be stored as a pickle.
            SharesLostError: a share of an optimizer and its copy were lost, and there is no durable checkpoint.
        """
        # Before the first collective operation, and so before the new rank 0 becomes the writer.
        if HOROVOD.rank() != 0:
            self._commits.durable.close()
        self._commits.resume()
        self._commits.memory.wait()
        kept = self._agree_on_shares()
        own = self._commits.step + 1 if self._commits.last is not None else 0
        if own:  # the micro-batches of an unfinished step are taken again, by all workers of the new world
            self._drop_gradients()
        everyone = HOROVOD.allgather(torch.tensor([own], dtype=torch.int64), name="hvd_elastic.commits").tolist()
        newest = max(everyone)
        root = everyone.index(newest)
        if newest == 0:
            self._restore_durable()
        is_new = own != newest or newest == 0
        if newest == 0 or any(each != newest for each in everyone):
            self._receive(root, joins=is_new)
        has_moved = self._move_shares(newest, root, kept)
        if is_new or has_moved:
            self.save()
        if newest == 0:
            self._copy_shares()
        # Later the workers hold a state: a value that changed must not end the job.
        if newest == 0 and HOROVOD.rank() == 0:
            self._commits.durable.validate(self._commits.last)
        self._state_objects.reset_samplers()
        self._enter_world()

    def end_training(self) -> None:
        """Wait until the last commit is durable. Called by `elastic.run` when the training function has returned.

        A collective operation: if the worker that stores the commit is lost meanwhile, the others still hold it.
        """
        self._save_final()
        self._emit_checkpoints()
        if HOROVOD.size() > 1 and self._commits.durable.configured:
            HOROVOD.allreduce(torch.zeros(1), op=ReduceOp.AVERAGE, name="hvd_elastic.end")

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Remember a host update until the next commit. Called by Horovod in a thread of its own."""
        self._host_messages.put((timestamp, update_res))

    def dispensable(self) -> bool:
        """Whether this process, which waits for its next world, may exit: its pod ends, and nobody needs what it holds.

        With a durable tier nobody does once the last commit is durable. The writer first makes it so if it is not: no
        other worker may be left to do so. Without one, nobody does if no other worker can take the state over.
        """
        if not self._commits.durable.configured:
            return departure.has_no_successor()
        return departure.announced() and self._commits.save_to_store_sync("this pod is about to end")

    # --- Learning rate -----------------------------------------------------------------------------------------------

    def scale_learning_rate(self, rule: str, *, base_size: int = 1, warmup_steps: int = 0) -> None:
        """Scale the learning rate with the world size. The job's rule (`HVD_ELASTIC_LEARNING_RATE`) takes precedence.

        The factor is applied during the optimizer's step only: schedulers, checkpoints and the script see the script's
        own rate.

        Args:
            rule: `constant` (factor 1), `linear` (size / base_size) or `sqrt` (its square root).
            base_size: number of workers for which the script's own rate is meant. Default 1.
            warmup_steps: optimizer steps over which the factor rises after workers were added. Default 0: at once. When
                workers are lost, the factor falls at once.

        Raises:
            BatchError: there is no such rule, `base_size` is below 1 or `warmup_steps` is below 0.
        """
        self._rate_arguments = {"rule": rule, "base_size": base_size, "warmup_steps": warmup_steps}
        self._rate_policy = LearningRatePolicy.choose(**self._rate_arguments)

    @property
    def learning_rate_factor(self) -> float:
        """The factor on the script's learning rate in the next optimizer step; 1.0 without a rule."""
        progress = self._progress
        return self._rate_policy.factor(
            size=progress.size or HOROVOD.size(),
            start=progress.factor_start,
            steps=progress.optimizer_steps - progress.resized_at,
        )

    # --- Internal ----------------------------------------------------------------------------------------------------

    def _drop_gradients(self) -> None:
        self._optimizer_hooks.drop_gradients()
        self._state_objects.drop_gradients()

    def _check_between_steps(self) -> None:
        """Refuse a commit in the middle of a step. One of `micro_batch_size` is taken again as a whole."""
        if self._optimizer_hooks.holds_gradients() and not self.accumulating:
            raise StateError(
                "commit() between loss.backward() and optimizer.step(): a commit has no gradients, so a resize would "
                "leave out the samples behind them. Commit after optimizer.step(); to accumulate gradients, use "
                "state.batches(micro_batch_size=...)"
            )

    def _tree(self) -> Tree:
        progress, randomness = self._progress.state_dict(), self._randomness.state()
        return {**self._state_objects.tree(), "progress": progress, "randomness": randomness}

    def _restore_durable(self) -> None:
        """On rank 0, when no worker holds a state: load the newest durable checkpoint, if there is one.

        Without one, the job's warm start: the other workers get it with the state that they receive.
        """
        if HOROVOD.rank() != 0:
            return
        self._progress.lineage = f"{time.time_ns():x}-{id(self):x}"
        found = self._commits.durable.restore(self._progress.lineage)
        if self._shares.are_lost:
            self._shares.are_lost = found is None
            if found is None:
                return
        words = self._begin_anew() if found is None else self._load_durable(found)
        if self._commits.durable.configured:
            say(logger, words)

    def _load_durable(self, found: Tree) -> str:
        """Go on from a durable checkpoint. Returns what is said of it."""
        durable = self._commits.durable
        durable.check_names(found, self._tree())
        lineage, found = self._progress.lineage, upgrade(found)
        self._go_to(Progress.from_state_dict(found["progress"]))
        self._progress.lineage = lineage
        self._progress.full_losses += self._commits.has_lost_all
        self._state_objects.load_stored(found)
        self._randomness.load(found.get("randomness", {}))
        self._restored_step = self.step_count
        where = progress_words(self._progress, self.epoch, TRAIN)
        return f"restored {where} from {durable.place}/{durable.restored_name}"

    def _begin_anew(self) -> str:
        """Take the weights of the job's warm start, if it has one. Returns what is said of it."""
        words = f"no checkpoint in {self._commits.durable.place}, beginning anew"
        warm_start = WarmStart.of_job(os.environ)
        if warm_start is None:
            return words
        warmed = warm_start.load(self._state_objects.modules())
        return f"{words}, with {', '.join(warmed)} of {warm_start.place.partition('?')[0]}"

    def _receive(self, root: int, *, joins: bool) -> None:
        """Load the root's state. A worker that holds a commit receives into its own tensors: it can go back.

        `joins`: this worker did not hold it.
        """
        present = self._tree()
        for name in self._state_objects.sharded():  # each gets a share of its own afterwards
            present["objects"][name] = outlined(present["objects"][name])
        own = self._state_objects.own_tensors(present) if self._commits.last is not None else {}
        tree = broadcast(present, root, into=own)
        if HOROVOD.rank() != root:
            self._go_to(Progress.from_state_dict(tree["progress"]))
            self._state_objects.adopt(tree)
            if joins:
                self._randomness.join(tree["randomness"], HOROVOD.rank(), is_fresh=not self._progress.commits)

    def _agree_on_shares(self) -> list[Kept]:
        """Go to the newest commit of which every share is left, or to none. Returns what each rank has of it."""
        sharded = self._state_objects.sharded()
        if not sharded:
            return []
        chosen, kept = self._shares.agree_on_commit(sharded, self._commits.kept())
        if self._commits.last is None:
            return kept
        if chosen is None:
            self._commits.memory.forget()
        elif self._commits.step > chosen:
            self._commits.memory.go_back()
            if self._commits.step > chosen:
                self._commits.memory.forget()
            self.restore()
        return kept

    def _move_shares(self, newest: int, root: int, kept: list[Kept]) -> bool:
        """Give each rank its share of the state that all hold now. Returns whether any share was moved."""
        sharded = self._state_objects.sharded()
        if not sharded:
            return False
        if newest:
            return self._shares.move(sharded, self._commits.kept(), newest - 1, kept)
        self._check_shares_found()
        self._shares.spread(sharded, root)
        return True

    def _check_shares_found(self) -> None:
        """Raise SharesLostError on all workers, if shares were lost and rank 0 has found no durable checkpoint."""
        are_lost, place = agree((self._shares.are_lost, self._commits.durable.place))
        self._shares.are_lost = False
        if are_lost:
            where = f"{place} has no checkpoint" if place else "the job has no durable tier: give it `checkpoint`"
            raise SharesLostError(
                f"a share of the optimizer's state and its copy were lost together, and {where}. Training cannot go on"
                " from what is left; started again, the job begins anew"
            )

    def _copy_shares(self) -> None:
        """Give the shares of the last commit to a second rank. A collective operation."""
        if sharded := self._state_objects.sharded():
            self._commits.memory.wait()
            self._shares.copy(sharded, self._commits.last, self._commits.step)

    def _gather_shares(self, *, store: bool) -> None:
        """Give rank 0 all shares of the last commit, for the durable tier. A collective operation."""
        committed = self._commits.last["objects"]
        whole = {name: each.gathered(committed[name]) for name, each in self._state_objects.sharded().items()}
        if HOROVOD.rank() == 0:
            self._commits.add_gathered(whole, store=store)

    def _gather_for_store(self) -> None:
        """Make the last commit one that rank 0 can store, if it is not stored yet. A collective operation."""
        if self._commits.gathers and agree(self._commits.durable.is_writer and not self._commits.is_durable):
            self._gather_shares(store=False)

    def _save_final(self) -> None:
        """Make the last commit durable at the end of training. A collective operation."""
        self._gather_for_store()
        self._commits.save_final()

    def _enter_world(self) -> None:
        progress = self._progress
        if (certificate := self._batches.account.position.certificate) is not None:
            certificate.complete()
        self._job_was_at_risk = False
        # Chosen again: a standby receives the job's environment after its State was made.
        self._rate_policy = LearningRatePolicy.choose(**self._rate_arguments)
        if progress.size != HOROVOD.size():
            progress.factor_start = (
                self.learning_rate_factor if progress.size else self._rate_policy.target(HOROVOD.size())
            )
            progress.resized_at = progress.optimizer_steps
            progress.size = HOROVOD.size()
        if HOROVOD.rank() == 0:
            self._commits.durable.open_in_background(progress.lineage)

    def _commit_now(self, *, is_step: bool = True) -> None:
        """Commit, where `commit` may have been called before. `is_step`: it is told as a step of training."""
        self._progress.commits += 1
        self._progress.end_commits += not is_step
        self.save()
        self._copy_shares()
        if is_step:
            self._emit_step(self._logged)
            self._logged = {}
        self._agree(saved=True)

    def _agree(self, *, saved: bool) -> None:
        """Commit, store or stop for a new world, as the workers agree. `saved`: the state was just committed.

        Where no commit may be made, the world stays, and what is stored is the last commit.
        """
        may_commit = saved or self._batches.account.may_commit()
        account = self._batches.account
        agreement, digest = Agreement(
            hosts_changed=may_commit and not self._host_messages.empty(),
            risk=self._requested_risk(),
            keeps_running=not departure.announced(),
            gathers=self._commits.wants_parts,
        ).allreduced(account.unshared_digest())
        account.confirm(digest)
        if saved:
            self._certify_commit()
        if (agreement.hosts_changed or agreement.risk) and not saved and may_commit:
            self._progress.commits += 1
            self.save()
            self._copy_shares()
        if agreement.gathers and self._commits.last is not None:
            self._gather_shares(store=True)
        self._job_was_at_risk |= agreement.risk is RiskLevel.JOB
        if agreement.must_wait_for_store(job_was_at_risk=self._job_was_at_risk):
            with stall_watch.THIS_PROCESS.paused():
                self._save_to_store_sync()
        elif agreement.risk:  # other workers hold the state: training does not wait for the store
            self._request.take()
            self._commits.save_to_store_async()
        if agreement.hosts_changed:
            self._commits.durable.stop_opening()
            while not self._host_messages.empty():
                self._host_messages.get()
            self._go_to(Progress.from_state_dict(self._commits.last["progress"]))
            raise HostsUpdatedInterrupt(skip_sync=False)

    def _certify_commit(self) -> None:
        """Let the last commit have the certificate of its own samples, which is known only now."""
        certificate = self._batches.account.position.certificate
        if certificate is not None:
            self._commits.last["progress"]["data"]["certificate"] = certificate.state_dict()

    def _requested_risk(self) -> RiskLevel:
        if HOROVOD.local_rank() != 0 or not self._request.pending():
            return RiskLevel.NONE
        return RiskLevel.POD if departure.announced() else RiskLevel.JOB

    def _save_to_store_sync(self) -> None:
        """Make the last commit durable. All workers wait and learn the outcome, so that one that must leave can."""
        reason = self._request.take() if HOROVOD.local_rank() == 0 else ""
        self._gather_for_store()
        durable = self._commits.save_to_store_sync(reason or "request")
        if HOROVOD.size() > 1:
            own = torch.tensor([int(durable)])
            durable = bool(HOROVOD.allreduce(own, op=ReduceOp.MAX, name="hvd_elastic.durable").item())
        if durable:
            self._commits.mark_durable()
        if HOROVOD.rank() == 0 and self._commits.durable.configured:
            done = "done" if durable else "not done"
            logger.info("durable checkpoint on request at step %d: %s", self._commits.step, done)

    def _emit_step(self, logged: dict[str, object]) -> None:
        now = time.monotonic()
        rank, size, step = HOROVOD.rank(), HOROVOD.size(), self._progress.steps
        self._heartbeat.beat(step=step, rank=rank, size=size)
        stall_watch.THIS_PROCESS.note_step(step)
        if events.enabled():
            data = self._progress.data
            samples = sum(cursor.position for cursor in data.cursors(TRAIN)) if TRAIN in data.passes else None
            epoch = data.epoch if data.passes else self.epoch  # a commit at the end of an epoch belongs to the next one
            seconds = round(now - self._last_commit, 6)
            self._emit(events.Kind.STEP, epoch=epoch, samples=samples, seconds=seconds, **logged)
        self._last_commit = now
        self._emit_checkpoints()

    def _emit_checkpoints(self) -> None:
        for saved in self._commits.durable.take_outcomes():
            figures = {"seconds": round(saved.seconds, 6), "bytes": saved.size_bytes, "error": saved.error}
            self._emit(events.Kind.CHECKPOINT, saved=saved.step, **figures)

    def _before_step(self) -> float:
        self._commits.memory.fence()
        return self.learning_rate_factor

    def _after_step(self) -> None:
        self._progress.optimizer_steps += 1
