"""Slow, stopped, dead and living members of a world that stands still: who is written off, when, and who never."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import EndProcess, FinishJob, FormWorld, PingProcess, StartProcess
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.core.world import World
from hvd_elastic.launcher.core.world_limits import WorldLimits
from tests.properties import examples

LIMITS = WorldLimits(
    start=1, minimum=1, maximum=None, elastic_timeout=math.inf, reset_limit=None, restart_errors=False, settle=0.0,
    hang_timeout=600.0, removed_patience=2.0, start_timeout=120.0, first_start_timeout=600.0,
)  # fmt: skip
PING_SECONDS = 2.0
KNOCK_SECONDS = 0.4
"""Until a ping is over that a process does not answer, and one that no host answers."""


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of a member once another one is lost, in seconds from then on."""

    asks: float = 0.0
    """When it notices the loss. Before, it computes."""
    stops: float = math.inf
    dies: float = math.inf
    """Its host is taken away."""
    lost: float = math.inf
    """Its host is lost without a word."""

    @property
    def ends(self) -> float:
        return min(self.stops, self.dies, self.lost)

    @property
    def comes(self) -> bool:
        return self.asks < self.ends

    @property
    def gone(self) -> float:
        """When it must have been written off."""
        return min(max(0.0, min(self.stops, self.lost)) + LIMITS.silence, self.dies)

    def outcome(self, now: float) -> tuple[PingOutcome, float]:
        """What a ping that is sent now shows, and after how long."""
        if now >= min(self.lost, self.dies):
            return PingOutcome.UNREACHABLE, KNOCK_SECONDS
        if now >= self.stops:
            return PingOutcome.SILENT, PING_SECONDS
        return PingOutcome.ANSWERED, 0.001


class Standstill:
    """A world that has lost a member at time 0, and the fates of the others."""

    def __init__(self, fates: list[Fate], *, spare: bool, limits: WorldLimits = LIMITS) -> None:
        self.now = -1.0
        self.fates = {f"m{index}": fate for index, fate in enumerate(fates)}
        self.world = World(
            limits, Blacklist(cooldown=None, random=lambda: 0.0), Blacklist(cooldown=(1, 30), random=lambda: 0.0)
        )
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        self.tickets = 0
        self.pings: list[tuple[float, int, PingOutcome]] = []
        """Under way: when each ends, whom it asks, and what it will show."""
        self.sent: list[tuple[float, str]] = []
        self.ended: dict[str, float] = {}
        self.formed: list[tuple[float, frozenset[str]]] = []
        self.finish: FinishJob | None = None
        self.listed = ["lost", *self.fates]
        self.see()
        for name in list(self.listed):
            self.joins(name)
        for name in self.listed:
            self.world.registered((name, 0), self.now)
            self.world.synced((name, 0), self.now)
        self.take()
        if spare:
            self.listed.append("spare")
            self.see()
            self.joins("spare")
        self.formed.clear()

    def see(self) -> None:
        self.world.hosts_seen(tuple(Host(alias=name, address="x", slots=1) for name in self.listed), self.now)
        self.take()

    def joins(self, name: str) -> None:
        self.tickets += 1
        self.world.barrier_reached((name, 0), self.tickets, self.now)
        self.take()

    def take(self) -> None:
        while actions := self.world.actions.drain():
            for action in actions:
                match action:
                    case StartProcess(number=number, slot=slot):
                        self.names[number], self.numbers[slot.host.alias] = slot.host.alias, number
                    case FormWorld(slots=slots):
                        self.formed.append((self.now, frozenset(slot.host.alias for slot in slots)))
                    case EndProcess(number=number, at_once=True):
                        self.ended.setdefault(self.names[number], self.now)
                        self.world.exited(number, -9, self.now)
                    case PingProcess(number=number):
                        self.sent.append((self.now, self.names[number]))
                        outcome, seconds = self.fates[self.names[number]].outcome(self.now)
                        self.pings.append((self.now + seconds, number, outcome))
                    case FinishJob():
                        self.finish = action

    def dies(self, name: str) -> None:
        """A host that is taken away: it leaves the list with its process."""
        self.listed.remove(name)
        self.see()
        self.world.exited(self.numbers[name], -9, self.now)
        self.take()

    def asks(self, name: str) -> None:
        self.tickets += 1
        self.world.place_requested((name, 0), self.tickets, self.now)
        self.take()

    def run(self, until: float) -> None:
        events = [(0.0, self.dies, "lost")]
        events += [(fate.asks, self.asks, name) for name, fate in self.fates.items() if fate.comes]
        events += [(fate.dies, self.dies, name) for name, fate in self.fates.items() if fate.dies < math.inf]
        events.sort(key=lambda event: event[0])
        while not self.formed and self.finish is None:
            at = min(self.world.actions.wake_at, *(e[0] for e in events[:1]), *(p[0] for p in self.pings), until)
            if at >= until:
                return
            self.now = max(self.now, at)
            if events and events[0][0] <= self.now:
                _, act, name = events.pop(0)
                if name not in self.ended:
                    act(name)
            for ping in [ping for ping in self.pings if ping[0] <= self.now]:
                self.pings.remove(ping)
                self.world.pinged(ping[1], ping[2], self.now)
                self.take()
            self.world.decide(self.now)
            self.take()


fates = st.builds(
    Fate,
    asks=st.floats(0.0, 400.0),
    stops=st.one_of(st.just(math.inf), st.floats(-5.0, 60.0)),
    dies=st.one_of(st.just(math.inf), st.floats(0.0, 60.0)),
    lost=st.one_of(st.just(math.inf), st.floats(-5.0, 60.0)),
)


@given(st.lists(fates, min_size=1, max_size=6), st.booleans())
@settings(max_examples=examples(80))
def test_the_silent_are_written_off_and_the_slow_never(members: list[Fate], spare: bool) -> None:
    story = Standstill(members, spare=spare)
    story.run(until=1000.0)
    for name, fate in story.fates.items():
        if name in story.ended:
            assert fate.ends <= story.ended[name], "it lived"
            assert story.ended[name] <= fate.gone + 1e-6
    lasting = {name for name, fate in story.fates.items() if fate.ends == math.inf}
    if not lasting and not spare:
        assert story.finish is None, "every host was taken away: it waits for others"
        return
    (when, world), *more = story.formed
    assert not more
    assert lasting <= world
    present = {"spare"} | {name for name, fate in story.fates.items() if when <= min(fate.gone, fate.dies)}
    assert world <= present
    last = [fate.asks if name in lasting else fate.gone for name, fate in story.fates.items()]
    assert when <= max(last) + 1e-6, "nobody else is waited for"


def test_all_that_were_stopped_go_in_one_change() -> None:
    story = Standstill([Fate(stops=-1.0), Fate(stops=-2.0), Fate(), Fate(asks=0.3)], spare=False)
    story.run(until=100.0)
    assert story.ended == {"m0": LIMITS.silence, "m1": LIMITS.silence}
    assert story.formed == [(LIMITS.silence, frozenset({"m2", "m3"}))]


def test_a_lost_host_is_written_off_as_soon_as_the_others_stand_still() -> None:
    story = Standstill([Fate(lost=-1.0), Fate(), Fate(lost=-2.0), Fate(asks=0.1)], spare=False)
    story.run(until=100.0)
    ((when, world),) = story.formed
    assert world == {"m1", "m3"}
    assert when == LIMITS.ping_first + KNOCK_SECONDS


def test_a_lost_host_on_which_nobody_waits_may_come_back() -> None:
    """The others compute. Its network may only be cut off from the launcher's."""
    story = Standstill([Fate(lost=-1.0), Fate(asks=50.0)], spare=False)
    story.run(until=5.0)
    assert not story.ended


def test_nobody_is_lost_if_no_host_answers() -> None:
    """The launcher's own network is cut off a moment after the first member has asked."""
    story = Standstill([Fate(lost=0.1), Fate(lost=0.1), Fate(lost=0.1, asks=0.05)], spare=False)
    story.run(until=LIMITS.silence)
    assert not story.ended


def test_a_large_world_is_pinged_by_turns_and_those_that_do_not_come_first() -> None:
    """However many stand still, a second of it costs the launcher the same. Who is stopped is found all the same."""
    asking, computing = [Fate() for _ in range(20)], [Fate(asks=60.0) for _ in range(10)]
    limits = replace(LIMITS, pings_at_once=4)
    story = Standstill([Fate(stops=-1.0), *computing, *asking], spare=False, limits=limits)
    story.run(until=20.0)
    rounds = Counter(at for at, _ in story.sent)
    assert max(rounds.values()) == limits.pings_at_once
    assert min(later - earlier for earlier, later in pairwise(sorted(rounds))) == pytest.approx(limits.ping_again)
    first = [name for _, name in story.sent[: 5 * limits.pings_at_once]]
    assert {name for name, fate in story.fates.items() if not fate.comes or fate.asks} <= set(first)
    assert {name for _, name in story.sent} == set(story.fates), "each has its turn"
    assert story.ended == {"m0": LIMITS.silence}


def test_a_process_that_computes_for_minutes_is_waited_for() -> None:
    story = Standstill([Fate(asks=500.0), Fate()], spare=False)
    story.run(until=1000.0)
    assert story.formed == [(500.0, frozenset({"m0", "m1"}))]


def test_the_job_begins_again_without_the_last_holder_of_the_state_if_that_is_stopped() -> None:
    """Nobody asks: the others were taken away, and a newcomer waits for the state of a stopped process."""
    story = Standstill([Fate(stops=-1.0), Fate(asks=5.0, dies=3.0)], spare=True)
    story.run(until=100.0)
    assert story.formed == [(LIMITS.silence, frozenset({"spare"}))]
    assert story.finish is None


def test_a_living_process_that_holds_the_state_alone_is_not_given_up() -> None:
    story = Standstill([Fate(asks=400.0)], spare=True)
    story.listed.remove("m0")
    story.see()
    story.run(until=1000.0)
    assert [when for when, _ in story.formed] == [400.0]
