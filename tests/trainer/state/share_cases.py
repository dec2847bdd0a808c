"""What becomes of the ranks' shares, whatever is shared out: an optimizer's state alone, or a divided model with it.

Run on each rank of a static world: a case asserts, and says its name when it is done.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest
import torch

import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.sharding.committed_shares import SharesLostError
from hvd_elastic.trainer.state.elastic_state import State


class ShareCases(ABC):
    """The cases, and what they ask of what is shared out."""

    names: ClassVar[tuple[str, ...]]
    """Of the objects of a State of which each rank has a share."""

    @abstractmethod
    def fresh(self, checkpoint: str | None) -> State:
        """A State with a `model`, an `optimizer` and a `note`, before its first step."""

    @abstractmethod
    def step(self, state: State, number: int) -> object:
        """Take a step, the same on whatever rank."""

    @abstractmethod
    def lose(self, state: State) -> None:
        """Leave nothing of this rank's share, and of the model."""

    @abstractmethod
    def is_undisturbed(self, state: State, steps: int) -> bool:
        """Whether it is what a plain training comes to after so many steps."""

    @abstractmethod
    def check_saved(self, saved: Any, steps: int) -> None:
        """A checkpoint must be that of a plain training after so many steps."""

    def in_training(self, steps: int = 2, checkpoint: str | None = None) -> State:
        state = self.fresh(checkpoint)
        state.sync()
        self.take_steps(state, range(steps))
        return state

    def take_steps(self, state: State, steps: range) -> None:
        for step in steps:
            self.step(state, step)
            state.note = f"after {step}"
            state._commit_now()

    def die_and_come_back(self, state: State) -> None:
        """This process holds nothing any more, as one that has just been started."""
        state._commits.memory.forget()
        state._sharded._shares._generations = []
        self.lose(state)
        state._present.progress = type(state._present.progress)()

    def goes_on_as_undisturbed(self, state: State, done: int) -> None:
        assert state.note == f"after {done - 1}"
        assert state.step_count == done
        self.take_steps(state, range(done, done + 2))
        assert self.is_undisturbed(state, done + 2)

    def has_copies(self, state: State) -> None:
        """Whether this rank has the shares of the rank across the ring, as that rank has committed them."""
        mine = {name: state._commits.last["objects"][name]["shards"] for name in self.names}
        everyone = WORLD.allgather_object(mine, name="committed")
        if len(everyone) > 1:
            (*_, last) = state._sharded._shares._generations
            assert last.step == state.step_count
            assert last.share.rank == (WORLD.rank() - len(everyone) // 2) % len(everyone)
            for name in self.names:
                assert any(last.shards[name])
                for one, other in zip(last.shards[name], everyone[last.share.rank][name], strict=True):
                    assert one.keys() == other.keys()
                    assert all(torch.equal(one[each], other[each]) for each in one)

    def a_commit_has_a_copy_across_the_ring(self) -> None:
        state = self.in_training()
        self.has_copies(state)
        self.goes_on_as_undisturbed(state, 2)

    def going_back_takes_the_share_along(self) -> None:
        state = self.in_training()
        self.step(state, 7)
        state.note = "undone"
        state.restore()
        self.goes_on_as_undisturbed(state, 2)

    def a_lost_rank_costs_no_commit(self) -> None:
        for lost in range(WORLD.size()):
            state = self.in_training(3)
            if WORLD.rank() == lost:
                self.die_and_come_back(state)
            state.sync()
            self.has_copies(state)
            self.goes_on_as_undisturbed(state, 3)

    def ranks_lost_one_after_the_other_cost_no_commit(self) -> None:
        """What is lost second is what the first one got back, before any commit has copied it again."""
        state = self.in_training(3)
        for lost in (0, WORLD.size() // 2, 0):
            if WORLD.rank() == lost:
                self.die_and_come_back(state)
            state.sync()
            self.has_copies(state)
        self.goes_on_as_undisturbed(state, 3)

    def a_death_in_the_middle_of_a_commit_goes_back_to_the_one_before(self) -> None:
        """The others have committed, and the copy of the lost rank's share was not made."""
        state = self.in_training(3)
        if WORLD.rank() == WORLD.size() - 1:
            self.die_and_come_back(state)
        else:
            with torch.no_grad():
                next(state.model.parameters()).add_(1)
            state._present.progress.commits += 1
            state.note = "half"
            state.save()
        state.sync()
        self.goes_on_as_undisturbed(state, 3)

    def a_share_lost_with_its_copy_is_said(self) -> None:
        state = self.in_training()
        if WORLD.rank() in (1, (1 + WORLD.size() // 2) % WORLD.size()):
            self.die_and_come_back(state)
        with pytest.raises(SharesLostError, match="the job has no durable tier"):
            state.sync()

    def a_durable_checkpoint_is_the_plain_one(self) -> None:
        place = f"file://{sys.argv[2]}"
        state = self.in_training(checkpoint=place)
        state.end_training()
        state._commits.durable.close()
        if WORLD.rank() == 0:
            self.check_saved(elastic.load(place), 2)
        elastic.agree(None)

    def of_size(self, size: int) -> list[Callable[[], None]]:
        """The cases of a world of so many ranks, but those with a checkpoint."""
        everywhere = [self.a_commit_has_a_copy_across_the_ring, self.going_back_takes_the_share_along]
        in_company = [
            self.a_lost_rank_costs_no_commit,
            self.ranks_lost_one_after_the_other_cost_no_commit,
            self.a_death_in_the_middle_of_a_commit_goes_back_to_the_one_before,
        ]
        of_several = [self.a_share_lost_with_its_copy_is_said]
        return [*everywhere, *(in_company if size > 1 else []), *(of_several if size > 2 else [])]


def run(cases: Iterable[Callable[[], None]]) -> None:
    for case in cases:
        case()
        print(f"done: {case.__name__}", flush=True)
    print("all done", flush=True)
