"""`elastic.State`: an `hvd.elastic` state that also counts samples and makes commits durable.

A commit is one tree: the state of every object, the plain values, and the progress (epoch, positions, counters). It
lives in host memory (`host_memory`), is stored durably at an interval (`durable_tier`), and reaches new workers by
broadcast (`broadcast`). The position in the data is part of it, so going back to a commit also goes back in the data.
"""

from collections.abc import Collection
from typing import Any, Final

import torch

from hvd_elastic.trainer.collectives.errors import HostsUpdatedInterrupt
from hvd_elastic.trainer.collectives.horovod_classes import TorchState, init_torch_state
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp
from hvd_elastic.trainer.data import sample_proof
from hvd_elastic.trainer.data.progress import Progress
from hvd_elastic.trainer.elastic import departure, horovod_patches, training_mark
from hvd_elastic.trainer.elastic.mistakes import swallowed_interrupt
from hvd_elastic.trainer.elastic.stalls import stall_watch
from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.state.agreement import Agreement, RequestedSaves
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.divided import division
from hvd_elastic.trainer.state.durable.durable_tier import DEFAULT_KEEP, DurableTier, TierSettings
from hvd_elastic.trainer.state.durable.job_beginning import JobBeginning
from hvd_elastic.trainer.state.epochs import EpochsMixin
from hvd_elastic.trainer.state.memory.host_memory import HostMemory
from hvd_elastic.trainer.state.optimizer_hooks import LearningRateFactor
from hvd_elastic.trainer.state.present_state import PresentState
from hvd_elastic.trainer.state.replicas.replica_check import ReplicaCheck, ReplicaMode
from hvd_elastic.trainer.state.sharded_commits import ShardedCommits
from hvd_elastic.trainer.state.state_objects import StateError
from hvd_elastic.trainer.state.step_report import StepReport, tell_saves

_PROOF_SECONDS: Final = 30.0
"""At most, for the proof of the last epoch's samples at the end of training: 50 ms for a million of them."""


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
        checkpoint: URL of the durable tier, a prefix in a bucket or a folder: `s3://bucket/prefix`, `file:///path`
            ([all forms](checkpoints.md#where)). The job's own URL (`HVD_ELASTIC_CHECKPOINT`) takes precedence. Default
            None: no durable tier, unless the job names one.
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
        replicas: what happens when workers hold other parameters, optimizer states or learning rates than each other:
            `stop` (differences of rounding and faults of one worker are mended, and a script that makes them differ
            ends with an error), `warn` or `off`. The job's `HVD_ELASTIC_REPLICAS` takes precedence. Default `stop`.
        rank_local: names of objects that are each worker's own by design, and are not compared. Default none.
        values: further objects and plain values, by name. A name must not start with `_` and must not be one that State
            itself uses.

    Raises:
        StateError: a name in `values` or `rank_local` cannot be used, or `replicas`; or a module is divided as no
            other world can have it.
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
        replicas: str = ReplicaMode.STOP,
        rank_local: Collection[str] = (),
        **values: Any,
    ) -> None:
        horovod_patches.init()
        self._handlers: dict[str, Any] = {}
        given = {"epoch": 0, "model": model, "optimizer": optimizer, **values}
        reserved = sorted(name for name in given if name.startswith("_") or hasattr(type(self), name))
        if reserved:
            raise StateError(f"State: {', '.join(reserved)}: taken by State itself; use other names")
        if undividable := list(division.problems(given)):
            raise StateError("; ".join(undividable))
        self._present = PresentState(self, given, seeding=seeding, before_step=self._before_step)
        for name, value in given.items():
            setattr(self, name, value)
        init_torch_state(self)
        self._settings = TierSettings(
            script_url=checkpoint, script_keep=checkpoint_keep, script_allow_missing=allow_missing
        )
        self._batches, self._memory = self._present.batches, HostMemory(overlap=overlap)
        self._durable = DurableTier(self._settings)
        self._commits = Commits(self._memory, self._durable)
        self._sharded = ShardedCommits(self._present.objects, self._memory, self._commits, self._durable)
        self._beginning = JobBeginning(self._present, self._durable)
        self._replicas = ReplicaCheck(
            self._present.objects, mode=replicas, rank_local=rank_local, go_back=self._memory.forget
        )
        self._requests = RequestedSaves()
        self._rate_factor = LearningRateFactor()
        self._stalls = stall_watch.THIS_PROCESS
        self._report = StepReport(self._stalls, training_mark.THIS_PROCESS)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. An optimizer that becomes part of the state gets the hooks."""
        super().__setattr__(name, value)
        if isinstance(value, torch.optim.Optimizer):
            self._present.watch(name, value)

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
            RendezvousLost: the launcher is gone. The process ends; its state is stored, if there is a store.
        """
        swallowed_interrupt.THIS_PROCESS.raise_again()
        self._present.check_between_steps()
        self._report.log(logged)
        self._batches.hints.commit(self._present.counts)
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
        swallowed_interrupt.THIS_PROCESS.raise_again()
        self._present.check_between_steps()
        self._agree(saved=False)

    def log(self, **fields: object) -> None:
        """Add values to the event of the next commit.

        Args:
            fields: values by name, such as `loss=loss`. A tensor of one element is written as a number.
        """
        self._report.log(fields)

    def save(self) -> None:
        """Copy the state to host memory, and store it in the background if the checkpoint interval is over.

        Called by `commit()`; a script does not need it.

        Raises:
            TornCommitError: see `commit`.
        """
        self._save(is_complete=True)

    def _save(self, *, is_complete: bool) -> None:
        self._present.progress.data = self._batches.account.commit()
        self._present.progress.trained_seconds += self._commits.lap()
        is_sharded = bool(self._present.objects.sharded())
        self._commits.save_to_memory(
            self._present.tree(),
            owned=self._present.hooks.owned_addresses,
            gathers=is_sharded,
            is_complete=is_complete,
        )

    def restore(self) -> None:
        """Go back to the last commit. Called by `elastic.run` after a failure.

        Gradients are dropped: they are those of an undone step. If there is no commit, nothing else is changed.

        Raises:
            TornCommitError: the last commit is not whole.
        """
        swallowed_interrupt.THIS_PROCESS.taken()
        self._durable.stop_opening()
        self._report.forget()
        self._present.abandon_step()
        if self._commits.last is not None:
            self._memory.wait()
            self._present.load(self._commits.last, kinds=self._memory.kinds)

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
        swallowed_interrupt.THIS_PROCESS.taken()
        # Before the first collective operation, and so before the new rank 0 becomes the writer.
        if WORLD.rank() != 0:
            self._durable.close()
        self._commits.resume()
        self._memory.wait()
        kept, must_restore = self._sharded.agree_on_commit()
        if must_restore:
            self.restore()
        own = self._commits.step + 1 if self._commits.last is not None else 0
        if own:  # the micro-batches of an unfinished step are taken again, by all workers of the new world
            self._present.drop_gradients()
        everyone = WORLD.allgather(torch.tensor([own], dtype=torch.int64), name="hvd_elastic.commits").tolist()
        newest = max(everyone)
        root = everyone.index(newest)
        is_beginning = newest == 0
        if is_beginning and WORLD.rank() == 0 and self._beginning.load(anew=not self._sharded.are_lost):
            self._sharded.mark_restored()
        is_new = own != newest or is_beginning
        if is_beginning or any(each != newest for each in everyone):
            self._present.receive(root, in_place=self._commits.last is not None, joins=is_new)
        has_moved = self._sharded.move(None if is_beginning else newest - 1, root, kept)
        if is_new or has_moved:
            self.save()
        if is_beginning:
            self._sharded.copy()
        # Later the workers hold a state: a value that changed must not end the job.
        if is_beginning and WORLD.rank() == 0:
            self._beginning.check_storable(self._commits.last)
        self._present.enter_world()
        self._requests.enter_world()
        self._replicas.enter_world()
        self._commits.compares = self._replicas.is_on
        self._rate_factor.enter_world(self._present.progress)
        if WORLD.rank() == 0:
            self._durable.open_in_background(self._present.progress.lineage)
        self._report.enter_world()

    def end_training(self) -> None:
        """Wait until the last commit is durable, and tell of the end. Called when the training function has returned.

        A collective operation: all ranks end together. If the one that stores the commit is lost meanwhile, the others
        still hold it.
        """
        self._sharded.store_final()
        tell_saves(self._durable.take_outcomes(), self._present.progress)
        sample_proof.THIS_PROCESS.wait(_PROOF_SECONDS)
        self._report.tell_end(self._present.progress)
        if WORLD.size() > 1:
            WORLD.allreduce(torch.zeros(1), op=ReduceOp.AVERAGE, name="hvd_elastic.end")

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Remember a host update until the next commit. Called by Horovod in a thread of its own."""
        self._host_messages.put((timestamp, update_res))

    def dispensable(self) -> bool:
        """Whether this process, which waits for its next world, may exit: its pod ends, and nobody needs what it holds.

        With a durable tier nobody does once the last commit is durable. The writer first makes it so if it is not: no
        other worker may be left to do so. Where the writer is lost, or has given the store up for a next world that
        does not come, the first worker that is left becomes it. Without a tier, nobody does if no other worker can take
        the state over.
        """
        if not self._settings.configured:
            return departure.has_no_successor()
        if not departure.announced():
            return False
        if not (self._commits.is_durable or self._durable.is_writer) and rendezvous_client.is_next_writer():
            self._durable.open_in_background(self._present.progress.lineage)
        return self._commits.save_to_store_sync("this pod is about to end")

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
        self._rate_factor.choose(rule=rule, base_size=base_size, warmup_steps=warmup_steps)

    @property
    def learning_rate_factor(self) -> float:
        """The factor on the script's learning rate in the next optimizer step; 1.0 without a rule."""
        return self._rate_factor.at(self._present.progress)

    # --- Internal ----------------------------------------------------------------------------------------------------

    def _before_step(self) -> float:
        self._memory.fence()
        return self.learning_rate_factor

    def _commit_now(self, *, is_step: bool = True) -> None:
        """Commit, where `commit` may have been called before. `is_step`: it is told as a step of training."""
        progress = self._present.progress
        if is_step:
            self._report.begin_commit()
        progress.commits += 1
        progress.end_commits += not is_step
        self._save(is_complete=False)
        self._sharded.copy()
        if is_step:
            self._report.tell(progress, self.epoch)
            tell_saves(self._durable.take_outcomes(), progress)
        self._agree(saved=True, compares=self._replicas.is_due() or not is_step)
        self._report.end_commit()

    def _agree(self, *, saved: bool, compares: bool = False) -> None:
        """Commit, store or stop for a new world, as the workers agree. `saved`: the state was just committed.

        `compares`: this worker wants all to be compared now.

        Where no commit may be made, the world stays, and what is stored is the last commit.
        """
        account = self._batches.account
        may_commit = saved or account.may_commit()
        agreement, digest = Agreement(
            hosts_changed=may_commit and not self._host_messages.empty(),
            risk=self._requests.risk,
            keeps_running=not departure.announced(),
            gathers=self._commits.wants_parts,
            compares=compares or (saved and self._commits.wants_comparison),
        ).allreduced(account.unshared_digest())
        account.confirm(digest)
        if saved:  # the certificate of the commit's own samples is known only now
            self._commits.complete(account.position.certificate)
        if (agreement.hosts_changed or agreement.risk) and not saved and may_commit:
            self._present.progress.commits += 1
            self.save()
            self._sharded.copy()
            saved = True
        if saved and (agreement.compares or agreement.risk):
            self._compare()
        if agreement.gathers and self._commits.last is not None:
            self._sharded.gather(store=True)
        self._requests.note(agreement.risk)
        if agreement.must_wait_for_store(job_was_at_risk=self._requests.job_was_at_risk):
            with self._stalls.paused():
                self._sharded.store(self._requests.take())
            if departure.has_lost_launcher():
                raise rendezvous_client.RendezvousLost
        elif agreement.risk:  # other workers hold the state: training does not wait for the store
            self._requests.take()
            self._commits.save_to_store_async()
        if agreement.hosts_changed:
            self._durable.stop_opening()
            while not self._host_messages.empty():
                self._host_messages.get()
            self._present.go_to(Progress.from_state_dict(self._commits.last["progress"]))
            interrupt = HostsUpdatedInterrupt(skip_sync=False)
            swallowed_interrupt.THIS_PROCESS.note(interrupt)
            raise interrupt

    def _compare(self) -> None:
        """Compare all workers after a commit, which is made anew if what they hold has to be changed."""
        is_restorable = self._durable.durable_step is not None or self._beginning.restored_step is not None
        if self._replicas.is_on and self._replicas.compare(self._commits.step, is_restorable=is_restorable):
            self.save()
            self._sharded.copy()
        self._commits.mark_compared()
