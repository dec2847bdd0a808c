"""What a world of many processes costs: the lines of the decisions' code that run, which no machine's speed changes."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hvd_elastic.launcher import core
from hvd_elastic.launcher.core.actions import AnswerRequest, NotifyCoordinator, WorldResized
from hvd_elastic.mpijob.contract import JoinAnswer
from tests.hvd_elastic.launcher.test_world import Story

CORE = str(Path(core.__file__).parent)
SLOTS = 8
FEW, MANY = 8, 32
"""Hosts."""


class Crowd:
    """A world on many hosts, whose processes do everything one after the other."""

    def __init__(self, hosts: int) -> None:
        self.story = Story()
        self.names = [f"h{number}" for number in range(hosts)]
        self.story.hosts(**dict.fromkeys(self.names, SLOTS))

    def keys(self, hosts: slice = slice(None)) -> Iterator[tuple[str, int]]:
        return ((name, local_rank) for name in self.names[hosts] for local_rank in range(SLOTS))

    def first_world(self) -> None:
        """All come to the barrier, one after the other, and train."""
        actions = [action for key in self.keys() for action in self.story.joins(*key)]
        assert [type(action) for action in actions].count(WorldResized) == 1
        for key in self.keys():
            self.story.world.registered(key, self.story.now)
            self.story.world.synced(key, self.story.now)
        self.story.actions()

    def shrink(self) -> None:
        """The last host leaves."""
        actions = self.story.hosts(**dict.fromkeys(self.names[:-1], SLOTS))
        assert [type(action) for action in actions] == [NotifyCoordinator]
        for key in self.keys():
            self.story.asks(*key)
        actions = [action for key in self.keys(slice(-1)) for action in self.story.joins(*key)]
        assert [type(action) for action in actions].count(WorldResized) == 1

    def wait_for_the_last(self, seconds: float) -> None:
        """All but one process wait at the barrier; each asks again at once when it is told to."""
        story = self.story
        *keys, _ = self.keys()
        tickets: dict[int, tuple[str, int]] = {}
        for key in keys:
            story.now += 0.01
            tickets[story.tickets + 1] = key
            story.joins(*key)
        while story.now < seconds:
            story.now = story.world.actions.wake_at
            answers = [action for action in story.wait(0.0) if isinstance(action, AnswerRequest)]
            for answer in answers:
                assert answer.text == JoinAnswer.WAIT
                story.now += 0.01
                key = tickets.pop(answer.ticket)
                tickets[story.tickets + 1] = key
                story.joins(*key)

    def grow(self) -> None:
        """As many hosts again come, and their processes wait at the barrier together."""
        new = [f"n{number}" for number in range(len(self.names))]
        self.story.hosts(**dict.fromkeys(self.names + new, SLOTS))
        with self.story.world.one_decision(lambda: self.story.now):
            for name in new:
                for local_rank in range(SLOTS):
                    self.story.joins(name, local_rank)
        assert [type(action) for action in self.story.actions()].count(NotifyCoordinator) == 1

    def all_die(self) -> None:
        with self.story.world.one_decision(lambda: self.story.now):
            for number in self.story.numbers.values():
                self.story.world.exited(number, 255, self.story.now)
        self.story.actions()


def lines(work: Callable[[], None]) -> int:
    """How many lines of the decisions' code `work` runs; each turn of a loop counts."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(CORE):
            return None
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def check_linear(few: int, many: int) -> None:
    assert few > FEW * SLOTS, "something was counted"
    assert many < few * MANY / FEW * 1.1


def test_the_first_barrier_costs_in_proportion_to_the_processes() -> None:
    check_linear(*(lines(Crowd(hosts).first_world) for hosts in (FEW, MANY)))


@pytest.mark.parametrize("what", [Crowd.shrink, Crowd.grow, Crowd.all_die])
def test_a_change_costs_in_proportion_to_the_processes(what: Callable[[Crowd], None]) -> None:
    counts = []
    for hosts in (FEW, MANY):
        crowd = Crowd(hosts)
        crowd.first_world()
        counts.append(lines(lambda crowd=crowd: what(crowd)))  # type: ignore[misc]
    check_linear(*counts)


def decisions(work: Callable[[Crowd], None], hosts: int) -> int:
    """How often the world decides meanwhile."""
    crowd, count = Crowd(hosts), 0
    decide = crowd.story.world.decide

    def counted(now: float) -> None:
        nonlocal count
        count += 1
        decide(now)

    crowd.story.world.decide = counted  # type: ignore[method-assign]
    work(crowd)
    return count


def test_waiting_at_the_barrier_takes_no_more_decisions_for_more_processes() -> None:
    """Requests that came one after the other must not be due one after the other, each with a decision of its own."""
    few, many = (decisions(lambda crowd: crowd.wait_for_the_last(seconds=100), hosts) for hosts in (FEW, MANY))
    assert many < few * 1.5
