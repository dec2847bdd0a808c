"""The world under random events: its promises hold for any events in any order.

The workers here are a model that follows the protocol (barrier, place, reset); time is a number that the test moves.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phases
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import (
    AnswerRequest,
    EndProcess,
    FinishJob,
    FormWorld,
    NotifyCoordinator,
    PingProcess,
    StartProcess,
    WorldResized,
)
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.core.processes.process import ProcessPhase
from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.core.slot_placement import Slot
from hvd_elastic.launcher.core.world import World
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.mpijob.contract import Exit
from tests.properties import examples


@dataclass
class Worker:
    """A process as it would behave."""

    number: int
    slot: Slot
    doing: str = "starting"
    """starting, joining (held), asking (held), placed, again, syncing, training, hung"""
    place: tuple[int, int] = (0, 0)
    state: int = -1
    """The generation of the newest world in which it synced; -1: it has no state yet."""
    world: int = 0
    ticket: int = 0
    before_hang: str = ""
    missed: list[tuple[int, str, str]] = field(default_factory=list)
    """Answers that came while it hung."""


class Machine(RuleBasedStateMachine):
    """Adds, removes, kills, hangs; steps the workers one at a time; moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.workers: dict[int, Worker] = {}
        self.tickets: dict[int, tuple[int, str]] = {}
        self.next_ticket = 0
        self.hosts: list[Host] = []
        self.made = 0
        self.finish: FinishJob | None = None
        self.listed_at_the_end: set[str] = set()
        self.notices = 0
        self.collects = False
        """Whether events are only reported, and the actions carried out later."""
        self.formed: FormWorld | None = None
        self.releases: list[WorldResized] = []
        self.asked_to_end: set[int] = set()
        self.failed: set[str] = set()
        """Aliases of hosts on which a process has ended that was not asked to."""

    @initialize(
        minimum=st.integers(1, 3),
        maximum=st.one_of(st.none(), st.integers(3, 6)),
        sizes=st.one_of(st.just(set[int]()), st.sets(st.integers(1, 6), max_size=3)),
        count=st.integers(3, 4),
    )
    def begin(self, minimum: int, maximum: int | None, sizes: set[int], count: int) -> None:
        self.sizes = tuple({minimum, *(size for size in sizes if size > minimum)}) if sizes else ()
        limits = WorldLimits(
            start=minimum, minimum=minimum, maximum=maximum, sizes=self.sizes, elastic_timeout=1e6,
            reset_limit=None, restart_errors=True,
            settle=0.0, hang_timeout=60.0, removed_patience=2.0, start_timeout=120.0,
            first_start_timeout=120.0,
        )  # fmt: skip
        self.world = World(
            limits, Blacklist(cooldown=None, random=lambda: 0.5), Blacklist(cooldown=(1, 30), random=lambda: 0.5)
        )
        for _ in range(count):
            self.add(1, False)

    # --- what may happen ---------------------------------------------------------------------------------------------

    @rule(slots=st.integers(1, 2), first=st.booleans())
    def add(self, slots: int, first: bool) -> None:
        if len(self.hosts) < 6:
            self.made += 1
            host = Host(alias=f"h{self.made}-1", address="10.0.0.1", slots=slots, pod=f"h{self.made}")
            self.hosts.insert(0 if first else len(self.hosts), host)
            self.see()

    @precondition(lambda self: self.hosts)
    @rule(index=st.integers(0, 5))
    def remove(self, index: int) -> None:
        self.hosts.pop(index % len(self.hosts))
        self.see()

    @precondition(lambda self: self.hosts)
    @rule(index=st.integers(0, 5))
    def replace(self, index: int) -> None:
        old = self.hosts.pop(index % len(self.hosts))
        name, generation = old.alias.split("-")
        self.hosts.append(
            Host(alias=f"{name}-{int(generation) + 1}", address=old.address, slots=old.slots, pod=old.pod)
        )
        self.see()

    @precondition(lambda self: self.workers)
    @rule(index=st.integers(0, 20), code=st.sampled_from([-9, 134, CONNECTION_LOST, 78, 1]))
    def die(self, index: int, code: int) -> None:
        worker = list(self.workers.values())[index % len(self.workers)]
        self.failed.add(worker.slot.host.alias)
        self.exit(worker, code)

    @precondition(lambda self: self.workers)
    @rule(index=st.integers(0, 20))
    def hang(self, index: int) -> None:
        worker = list(self.workers.values())[index % len(self.workers)]
        if worker.doing != "hung":
            worker.before_hang, worker.doing = worker.doing, "hung"

    @precondition(lambda self: any(w.doing == "hung" for w in self.workers.values()))
    @rule()
    def recover(self) -> None:
        """A hung process goes on and handles the answers that have come meanwhile."""
        worker = next(w for w in self.workers.values() if w.doing == "hung")
        worker.doing, missed, worker.missed = worker.before_hang, worker.missed, []
        for ticket, kind, text in missed:
            if ticket == worker.ticket and worker.number in self.workers:
                self.obey(worker, kind, text)

    @precondition(lambda self: self.workers)
    @rule(indices=st.sets(st.integers(0, 5), min_size=2, max_size=4), steps=st.booleans())
    def happen_together(self, indices: set[int], steps: bool) -> None:
        """Several processes die, or all that do not hang make a step, between two decisions."""
        workers = list(self.workers.values())
        with self.at_once():
            for worker in workers if steps else [workers[i] for i in indices if i < len(workers)]:
                if steps:
                    self.step(worker)
                else:
                    self.failed.add(worker.slot.host.alias)
                    self.exit(worker, -9)

    @rule(count=st.integers(1, 12))
    def work(self, count: int) -> None:
        """Every worker makes some progress."""
        for _ in range(count):
            for worker in list(self.workers.values()):
                if worker.number in self.workers:
                    self.step(worker)

    @rule(seconds=st.sampled_from([0.01, 0.6, 3.0, 30.0, 70.0, 130.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(2000):
            at = min(max(self.world.actions.wake_at, self.now), end)
            self.now = at
            self.call(lambda: self.world.decide(self.now))
            if at >= end:
                return
            if self.world.actions.wake_at <= at:
                self.now += 1e-6

    # --- the workers -------------------------------------------------------------------------------------------------

    def step(self, worker: Worker) -> None:
        if worker.doing in {"starting", "placed"}:
            worker.doing = "joining"
            self.request(worker, "join")
        elif worker.doing == "again":
            worker.doing = "asking"
            self.request(worker, "ask")
        elif worker.doing == "syncing" and not self.has_lost_a_mate(worker):
            worker.state, worker.doing = max(worker.state, worker.world), "training"
            self.call(lambda: self.world.synced(worker.slot.key, self.now))
        elif worker.doing in {"syncing", "training"} and self.is_disturbed(worker):
            worker.doing = "again"
            self.step(worker)

    def is_disturbed(self, worker: Worker) -> bool:
        """Whether it notices that its world has lost a member, or that rank 0 was notified."""
        return self.has_lost_a_mate(worker) or self.notices > 0

    def has_lost_a_mate(self, worker: Worker) -> bool:
        """Whether a member of its world is gone or stands still."""
        mates = [w for w in self.workers.values() if w.world == worker.world and w.doing in {"syncing", "training"}]
        return len(mates) < worker.place[1]

    def request(self, worker: Worker, kind: str) -> None:
        self.next_ticket += 1
        worker.ticket = self.next_ticket
        self.tickets[self.next_ticket] = (worker.number, kind)
        key, ticket = worker.slot.key, self.next_ticket
        call = self.world.barrier_reached if kind == "join" else self.world.place_requested
        self.call(lambda: call(key, ticket, self.now))

    def exit(self, worker: Worker, code: int) -> None:
        del self.workers[worker.number]
        self.call(lambda: self.world.exited(worker.number, code, self.now))

    def see(self) -> None:
        self.call(lambda: self.world.hosts_seen(tuple(self.hosts), self.now))

    # --- the driver ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        self.collects = True
        with self.world.one_decision(lambda: self.now):
            yield
        self.collects = False
        self.call(lambda: None)

    def call(self, event: object) -> None:
        if self.finish is None:
            event()  # type: ignore[operator]
        if self.collects:
            return
        while self.finish is None and (actions := self.world.actions.drain()):
            for action in actions:
                self.do(action)

    def do(self, action: object) -> None:
        match action:
            case StartProcess(number=number, slot=slot):
                assert not [w for w in self.workers.values() if w.slot.key == slot.key], "two processes in one place"
                self.workers[number] = Worker(number, slot)
            case EndProcess(number=number, at_once=at_once):
                self.end(number, at_once=at_once)
            case FormWorld(slots=slots):
                self.formed, self.notices = action, 0
                hands_over = slots[0].host.alias not in {host.alias for host in self.hosts}
                assert not self.sizes or len(slots) in self.sizes or hands_over
            case NotifyCoordinator():
                self.notices += 1
                self.call(lambda: self.world.notified(delivered=True, now=self.now))
            case PingProcess(number=number):
                lives = number in self.workers and self.workers[number].doing != "hung"
                outcome = PingOutcome.ANSWERED if lives else PingOutcome.SILENT
                self.call(lambda: self.world.pinged(number, outcome, self.now))
            case AnswerRequest(ticket=ticket, text=text):
                self.answer(ticket, text)
            case WorldResized():
                self.releases.append(action)
                self.check_release()
            case FinishJob():
                self.finish, self.listed_at_the_end = action, {host.uid for host in self.hosts}

    def end(self, number: int, *, at_once: bool) -> None:
        if number in self.workers:
            self.asked_to_end.add(number)
            if at_once:
                self.failed.add(self.workers[number].slot.host.alias)  # it hung
            self.exit(self.workers[number], -15)

    def answer(self, ticket: int, text: str) -> None:
        number, kind = self.tickets.pop(ticket)
        worker = self.workers.get(number)
        if worker is not None and worker.doing == "hung":
            worker.missed.append((ticket, kind, text))
        elif worker is not None and worker.ticket == ticket:
            self.obey(worker, kind, text)

    def obey(self, worker: Worker, kind: str, text: str) -> None:
        if kind == "ask" and text.startswith("-1"):
            self.exit(worker, Exit.REMOVED)
        elif kind == "ask":
            rank, size, *_ = map(int, text.split(","))
            worker.place, worker.doing = (rank, size), "placed"
        elif text == "go":
            if worker.place == (0, 0):
                worker.place = (worker.slot.rank, worker.slot.size)
            worker.world, worker.doing = self.world.processes.generation, "syncing"
            key = worker.slot.key
            self.call(lambda: self.world.registered(key, self.now))
        elif text == "again":
            worker.doing = "again"
        else:
            worker.doing = "placed"

    # --- promises ----------------------------------------------------------------------------------------------------

    def check_release(self) -> None:
        """All members of the world are there, and rank 0 holds the state if any process does."""
        assert self.formed is not None
        members = self.world.processes.alive()
        assert [m.key for m in members] == [slot.key for slot in self.formed.slots]
        assert all(m.phase is ProcessPhase.RUNNING for m in members)
        holders = [p for p in self.world.processes if p.holds_state and p.phase is not ProcessPhase.LEAVING]
        earlier = [m for m in members if m.number in self.state_holders()]
        if holders and earlier:
            assert members[0] in earlier, "rank 0 would hand out an empty state"

    def state_holders(self) -> set[int]:
        return {w.number for w in self.workers.values() if w.state >= 0}

    @invariant()
    def tickets_are_answered_once(self) -> None:
        if self.finish is None and hasattr(self, "world"):
            held = {p.ticket for p in self.world.processes if p.ticket is not None}
            waiting = {w.ticket for w in self.workers.values() if w.doing in {"joining", "asking"}}
            assert waiting <= held, "a worker waits for an answer that will never come"
            assert self.tickets.keys() == held, "a request of a process that has ended stays open"

    @invariant()
    def nothing_is_left_to_decide(self) -> None:
        """After most requests the world does not decide, because nothing could follow: so nothing does."""
        if self.finish is None and hasattr(self, "world"):
            wakes_at = self.world.actions.wake_at
            self.world.decide(self.now)
            assert self.world.actions.drain() == []
            assert wakes_at <= self.world.actions.wake_at, "it would decide too late"

    @invariant()
    def it_ends_only_for_a_reason(self) -> None:
        if self.finish is not None:
            assert self.finish.exit_code == Exit.ALL_WORKERS_LOST, self.finish
            failed = {alias.rpartition("-")[0] for alias in self.failed}
            assert self.listed_at_the_end & failed, "every pod in which a process failed is gone"
            holders = [
                p
                for p in self.world.processes
                if p.holds_state and p.phase is not ProcessPhase.LEAVING and self.world.processes.is_member(p)
            ]
            assert not holders, "it ended although a process holds the state"

    def teardown(self) -> None:
        """Once nothing fails any more and there are enough hosts, the world becomes the wanted one."""
        if self.finish is not None or not hasattr(self, "world"):
            return
        while len(self.hosts) < 3:
            self.add(1, False)
        for _ in range(60):
            while self.finish is None and self.nobody_can_notice():
                self.recover()
            for index, host in reversed(list(enumerate(self.hosts))):
                if host.alias in self.world.blacklisted(self.now):
                    self.replace(index)
            self.work(6)
            self.wait(10.0)
        if self.finish is None:
            self.check_it_has_settled()

    def nobody_can_notice(self) -> bool:
        """Whether all members of the world hang. Newcomers that wait are not members."""
        numbers = {process.number for process in self.world.processes.alive()}
        members = [w for w in self.workers.values() if w.number in numbers]
        return bool(members) and all(member.doing == "hung" for member in members)

    def check_it_has_settled(self) -> None:
        running = {w.slot.key for w in self.workers.values() if w.doing == "training"}
        slots = {slot.key for slot in self.world.processes.slots}
        assert not self.world.forming
        assert running == slots, (running, slots)
        assert len(slots) == self.world.wanted_size(self.now)


TestWorld = Machine.TestCase
TestWorld.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phases.explicit, Phases.generate],
)
