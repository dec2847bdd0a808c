"""Checks in a world of threads: each rank has a model and an optimizer of its own, and one of them is changed."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_REPLICAS, Exit
from hvd_elastic.trainer.collectives.any_rank import any_rank
from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.state.replicas.replica_check import (
    FIRST_COMMITS,
    ReplicaCheck,
    ReplicaError,
    WorkerDiffers,
)
from hvd_elastic.trainer.state.state_objects import StateError, StateObjects
from testbed.thread_world import ThreadTrainingWorld, in_each_rank


@dataclass
class Owner:
    """What a script gives to a State."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    average: torch.nn.Module

    @classmethod
    def make(cls) -> "Owner":
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        return cls(model, optimizer, copy.deepcopy(model))

    @property
    def objects(self) -> StateObjects:
        return StateObjects(self, ("model", "optimizer", "average"))


Change = Callable[[Owner, int], object]


@dataclass
class Found:
    """What one rank has come to."""

    error: BaseException | None = None
    changed: bool = False
    went_back: int = 0
    weight: torch.Tensor = field(default_factory=lambda: torch.zeros(0))


def checked(
    size: int,
    change: Change,
    *,
    first: Change | None = None,
    is_restorable: bool = True,
    times: int = 1,
    **options: Any,
) -> list[Found]:
    """Compare once before `change` (after `first`, or not at all if it is None), and `times` after it."""
    owners = [Owner.make() for _ in range(size)]

    def work(world: ThreadTrainingWorld) -> Found:
        owner, found = owners[world.rank()], Found()

        def go_back() -> None:
            found.went_back += 1

        check = ReplicaCheck(
            owner.objects, **{"mode": "stop", "rank_local": (), **options}, go_back=go_back, world=world
        )
        try:
            if first is not None:
                first(owner, world.rank())
                check.compare(1, is_restorable=is_restorable)
            for step in range(2, 2 + times):
                change(owner, world.rank())
                found.changed |= check.compare(step, is_restorable=is_restorable)
        except (ReplicaError, HorovodInternalError, WorkerDiffers) as error:
            found.error = error
        found.weight = next(iter(owner.model.parameters())).detach().clone()
        return found

    return in_each_rank(size, work)


def nothing(_owner: Owner, _rank: int) -> None:
    pass


def moved(by: float, *ranks: int) -> Change:
    def change(owner: Owner, rank: int) -> None:
        if rank in ranks:
            with torch.no_grad():
                next(iter(owner.model.parameters()))[0, 0] += by

    return change


def errors(found: list[Found]) -> set[str]:
    return {str(each.error) for each in found}


def test_workers_that_are_alike_go_on() -> None:
    def own(owner: Owner, rank: int) -> None:
        owner.model[1].running_mean += rank  # type: ignore[index]
        with torch.no_grad():
            next(iter(owner.average.parameters())).add_(rank)

    found = checked(3, own, first=nothing, times=3)
    assert [(each.error, each.changed) for each in found] == [(None, False)] * 3


def test_a_script_that_makes_them_differ_is_told_so() -> None:
    [words] = errors(checked(2, moved(0.5, 1)))
    assert "at step 2, and have since the beginning: model.0.weight of rank 1 is up to 0.5 from that of rank 0" in words
    assert "state.optimizer is a plain optimizer" in words
    assert "rank_local" in words


def test_the_state_of_an_optimizer_is_compared() -> None:
    def change(owner: Owner, rank: int) -> None:
        if rank:
            owner.optimizer.state[list(owner.model.parameters())[3]]["exp_avg"] += 1

    [words] = errors(checked(2, change))
    assert "exp_avg of model.1.bias in optimizer of rank 1 is up to 1 from" in words


def test_learning_rates_are_compared() -> None:
    def change(owner: Owner, rank: int) -> None:
        owner.optimizer.param_groups[0]["lr"] = 0.1 * (rank + 1)

    found = checked(2, change, first=nothing)
    assert all(isinstance(each.error, ReplicaError) for each in found)
    [words] = errors(found)
    assert "and were alike at step 1: the learning rate of optimizer is 0.2 on rank 1, and 0.1 on rank 0" in words
    assert "scheduler" in words


def test_a_difference_of_rounding_is_mended_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = checked(3, moved(1e-7, 2), first=nothing, times=3)
    assert [(each.error, each.changed) for each in found] == [(None, True)] * 3
    assert all(torch.equal(each.weight, found[0].weight) for each in found)
    [record] = caplog.records
    assert "model.0.weight of rank 2 differs from that of rank 0 by rounding: all go on with" in record.message


def test_one_of_three_leaves_and_the_others_go_back() -> None:
    found = checked(3, moved(0.5, 0), first=nothing)
    assert isinstance(found[0].error, WorkerDiffers)
    assert found[0].error.code == Exit.WORKER_DIFFERS
    assert [type(each.error) for each in found[1:]] == [HorovodInternalError] * 2
    assert [each.went_back for each in found] == [0, 1, 1]


def test_without_a_checkpoint_the_others_keep_what_they_have() -> None:
    found = checked(3, moved(0.5, 2), first=nothing, is_restorable=False)
    assert [type(each.error) for each in found] == [HorovodInternalError] * 2 + [WorkerDiffers]
    assert [each.went_back for each in found] == [0, 0, 0]


def test_where_two_differ_from_most_at_once_nobody_leaves() -> None:
    found = checked(5, moved(0.5, 3, 4), first=nothing)
    assert [(type(each.error), each.went_back) for each in found] == [(HorovodInternalError, 1)] * 5


def test_of_two_both_go_back_once() -> None:
    found = checked(2, moved(0.5, 1), first=nothing)
    assert [(type(each.error), each.went_back) for each in found] == [(HorovodInternalError, 1)] * 2


def test_without_a_checkpoint_two_go_on_from_rank_0_once() -> None:
    found = checked(2, moved(0.5, 1), first=nothing, is_restorable=False)
    assert [(each.error, each.changed) for each in found] == [(None, True)] * 2
    assert torch.equal(found[0].weight, found[1].weight)
    [words] = errors(checked(2, moved(0.5, 1), first=nothing, is_restorable=False, times=2))
    assert "again after going back" in words


def test_what_is_rank_local_is_left_out() -> None:
    assert errors(checked(2, moved(0.5, 1), rank_local=["model"])) == {"None"}
    with pytest.raises(StateError, match="rank_local: models: the State has nothing"):
        checked(2, nothing, rank_local=["models"])


def test_a_job_may_only_be_warned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = checked(2, moved(0.5, 1), mode="warn", times=3)
    assert [(each.error, each.changed) for each in found] == [(None, False)] * 2
    assert len(caplog.records) == 1
    with pytest.raises(StateError, match="must be one of stop, warn, off"):
        checked(2, nothing, mode="maybe")


def test_parameters_that_only_one_worker_has_are_named() -> None:
    def change(owner: Owner, rank: int) -> None:
        if rank:
            owner.optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.ones(2)))

    [words] = errors(checked(2, change))
    assert "is not on all ranks in the same shape" in words
    [words] = errors(checked(2, change, first=nothing, is_restorable=False))
    assert "is not on all ranks in the same shape" in words, "no fault of memory, and nothing to be mended"


def timed_check(owner: Owner, world: ThreadTrainingWorld, *, mode: str, clock: Callable[[], float]) -> ReplicaCheck:
    return ReplicaCheck(owner.objects, mode=mode, rank_local=(), go_back=lambda: None, world=world, clock=clock)


def test_a_warning_does_not_make_checks_more_frequent() -> None:
    def work(world: ThreadTrainingWorld) -> int:
        owner, seconds = Owner.make(), iter(range(1000))
        moved(0.5, 1)(owner, world.rank())
        check = timed_check(owner, world, mode="warn", clock=lambda: float(next(seconds)))
        compared = 0
        for step in range(1, 200):
            if any_rank(check.is_due(), world=world):
                check.compare(step, is_restorable=False)
                compared += 1
        return compared

    assert in_each_rank(2, work) == [len(FIRST_COMMITS)] * 2, "a check of a second is due again after a thousand"


def test_when_workers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0

    def work(world: ThreadTrainingWorld) -> list[int]:
        nonlocal seconds
        owner = Owner.make()
        check = timed_check(owner, world, mode="stop", clock=lambda: seconds)
        due = []
        for commit in range(1, 3000):
            if world.rank() == 0:
                seconds += 0.001 if commit % 2 else 0.0
            if check.is_due():
                due.append(commit)
        return due

    of_rank_0, of_rank_1 = in_each_rank(2, work)
    assert set(of_rank_0[: len(FIRST_COMMITS)]) == FIRST_COMMITS
    assert not of_rank_1, "rank 0 decides for all"
    monkeypatch.setenv(ENV_REPLICAS, "off")
    assert in_each_rank(2, work) == [[], []]
