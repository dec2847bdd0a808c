"""The state as it is now: what a commit copies, and what going back to one changes."""

from collections.abc import Callable, Iterable, Mapping

import torch

from hvd_elastic.trainer.collectives.distributed_optimizer import script_optimizer, sums_gradients
from hvd_elastic.trainer.collectives.this_world import TORCH, WORLD
from hvd_elastic.trainer.data.batches import Batches
from hvd_elastic.trainer.data.loop_hints import Counts
from hvd_elastic.trainer.data.pass_options import PassOptions
from hvd_elastic.trainer.data.progress import Progress, upgrade
from hvd_elastic.trainer.data.randomness import Randomness
from hvd_elastic.trainer.elastic.mistakes import swallowed_interrupt
from hvd_elastic.trainer.sharding.sharded_content import outlined
from hvd_elastic.trainer.state.broadcast import broadcast
from hvd_elastic.trainer.state.optimizer_hooks import OptimizerHooks
from hvd_elastic.trainer.state.parameter_changes import ParameterChanges
from hvd_elastic.trainer.state.state_objects import StateError, StateObjects
from hvd_elastic.trainer.state.state_tree import Path, TensorKind, Tree


class PresentState:
    """The script's objects and values, the progress, the position in the data, and the random number generators."""

    def __init__(self, owner: object, names: Iterable[str], *, seeding: bool, before_step: Callable[[], float]) -> None:
        """`owner` has attributes of these names. `before_step` is as for OptimizerHooks."""
        self._owner = owner
        self.objects = StateObjects(owner, names, optional=("model", "optimizer"))
        self.changes = ParameterChanges(self.objects)
        self.hooks = OptimizerHooks(before=before_step, after=self._count_step)
        self.progress = Progress()
        self.batches = Batches()
        self.randomness = Randomness(enabled=seeding)
        self._is_weighted = False

    @property
    def epoch(self) -> object:
        """The present epoch; a script's own may be anything."""
        return getattr(self._owner, "epoch", None)

    def watch(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Give an attribute of this name the hooks if it is part of the state."""
        if name in self.objects:
            self.hooks.watch(script_optimizer(optimizer))

    def tree(self) -> Tree:
        """Return all of it, without copies of the tensors."""
        progress, randomness = self.progress.state_dict(), self.randomness.state()
        changes = self.changes.tree()
        return {**self.objects.tree(), "progress": progress, "randomness": randomness, "changes": changes}

    def check_between_steps(self) -> None:
        """Refuse a commit in the middle of a step. One of `micro_batch_size` is taken again as a whole.

        Raises:
            StateError: there are gradients that no optimizer's step has used.
        """
        if self.hooks.holds_gradients() and self.batches.current.last:
            raise StateError(
                "commit() between loss.backward() and optimizer.step(): a commit has no gradients, so a resize would "
                "leave out the samples behind them. Commit after optimizer.step(); to accumulate gradients, use "
                "state.batches(micro_batch_size=...)"
            )

    def check_weighted(self) -> None:
        """Refuse an optimizer that sums gradients whose losses the script weighs. Looks once.

        Raises:
            StateError: there is one.
        """
        if not self._is_weighted:
            self._is_weighted = True
            for name, optimizer in self.objects.optimizers().items():
                if sums_gradients(optimizer):
                    raise StateError(
                        f"state.{name} adds the gradients of all workers up (op=hvd.Sum), and the loss is multiplied "
                        "by state.weight, which is for their mean: each step would grow with the number of workers. "
                        "Leave out op=hvd.Sum, or state.weight"
                    )

    def begin_step(self, options: PassOptions) -> None:
        swallowed_interrupt.THIS_PROCESS.raise_again()
        if options.may_pass_unevenly and self.objects.divided():
            raise StateError(
                "state.batches: what fully_shard has divided is gathered in each pass, and so all workers must make "
                "equally many: leave out batches_per_step, and give a micro_batch_size of 2 at least"
            )
        passes = options.backward_passes(WORLD.rank(), WORLD.size())
        self.hooks.set_backward_passes(passes)
        TORCH.models.split_steps(None if passes is None else lambda: self.batches.current.last)
        self.batches.hints.step_begun(self.counts)

    def counts(self) -> Counts:
        return Counts.of(vars(self._owner).values(), optimizer_steps=self.progress.optimizer_steps)

    def _count_step(self) -> None:
        self.progress.optimizer_steps += 1

    # --- Other states ------------------------------------------------------------------------------------------------

    def go_to(self, progress: Progress) -> None:
        self.progress = progress
        self.batches.go_to(progress.data)

    def drop_gradients(self) -> None:
        self.hooks.drop_gradients()
        self.objects.drop_gradients()

    def abandon_step(self) -> None:
        """Give up the step under way, and the passes over data."""
        self.batches.go_to(self.batches.account.position)
        self.hooks.reset_after_failure()
        self.drop_gradients()

    def load(self, committed: Tree, *, kinds: Mapping[Path, TensorKind]) -> None:
        """Go back to a commit of this process, which stays as it is. `kinds`: what its tensors were."""
        undone = self.batches.account.position
        self.go_to(Progress.from_state_dict(committed["progress"]))
        self.progress.data.count_repeated(undone)
        self.changes.load(committed["changes"])
        self.objects.load(committed, kinds=kinds)
        self.randomness.load(committed["randomness"])

    def load_stored(self, stored: Tree) -> None:
        """Go on from a durable checkpoint, as the state of the present lineage."""
        lineage, stored = self.progress.lineage, upgrade(stored)
        self.go_to(Progress.from_state_dict(stored["progress"]))
        self.progress.lineage = lineage
        self.changes.load(stored.get("changes", {}))
        self.objects.load_stored(stored)
        self.randomness.load(stored.get("randomness", {}))

    def receive(self, root: int, *, in_place: bool, joins: bool) -> None:
        """Take the root's state. A collective operation.

        Args:
            root: the rank that sends.
            in_place: this worker holds a commit to which it can go back: it receives into its own tensors.
            joins: this worker did not hold the root's commit.
        """
        present = self.tree()
        for name in self.objects.sharded():  # each gets a share of its own afterwards
            present["objects"][name] = outlined(present["objects"][name])
        tree = broadcast(present, root, into=self.objects.own_tensors(present) if in_place else {})
        if WORLD.rank() != root:
            self.go_to(Progress.from_state_dict(tree["progress"]))
            self.changes.load(tree["changes"])
            self.objects.adopt(tree)
            if joins:
                self.randomness.join(tree["randomness"], WORLD.rank(), is_fresh=not self.progress.commits)

    def enter_world(self) -> None:
        """Divide what is left over the present world."""
        self.objects.reset_samplers()
        if (certificate := self.batches.account.position.certificate) is not None:
            certificate.complete()
