"""Single decisions of the world, step by step; test_world_machine.py has the promises that always hold."""

import gc
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import (
    Action,
    AnswerRequest,
    EndProcess,
    FinishJob,
    FormWorld,
    NotifyCoordinator,
    StartProcess,
    WorldResized,
)
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE
from hvd_elastic.launcher.core.world import World
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.mpijob.contract import Exit, JoinAnswer, WriterAnswer

if TYPE_CHECKING:
    from hvd_elastic.launcher.core.slot_placement import SlotKey


class Story:
    """A world, a clock, and workers that act when a test calls them by name."""

    def __init__(
        self,
        minimum: int = 1,
        *,
        sizes: tuple[int, ...] = (),
        elastic_timeout: float = math.inf,
        reset_limit: int | None = None,
    ) -> None:
        limits = WorldLimits(
            start=minimum, minimum=minimum, maximum=None, sizes=sizes, elastic_timeout=elastic_timeout,
            reset_limit=reset_limit,
            restart_errors=False,
            settle=0.0, hang_timeout=60.0, removed_patience=2.0, start_timeout=120.0, first_start_timeout=600.0,
        )  # fmt: skip
        self.world = World(
            limits, Blacklist(cooldown=None, random=lambda: 0.0), Blacklist(cooldown=(1, 30), random=lambda: 0.0)
        )
        self.now = 0.0
        self.numbers: dict[SlotKey, int] = {}
        self.tickets = 0

    def hosts(self, **slots: int) -> list[Action]:
        self.world.hosts_seen(
            tuple(Host(alias=name, address="x", slots=count) for name, count in slots.items()), self.now
        )
        return self.actions()

    def joins(self, alias: str, local_rank: int = 0) -> list[Action]:
        self.tickets += 1
        self.world.barrier_reached((alias, local_rank), self.tickets, self.now)
        return self.actions()

    def asks(self, alias: str, local_rank: int = 0) -> list[Action]:
        self.tickets += 1
        self.world.place_requested((alias, local_rank), self.tickets, self.now)
        return self.actions()

    def dies(self, alias: str) -> list[Action]:
        self.world.exited(self.numbers[alias, 0], -9, self.now)
        return self.actions()

    def wait(self, seconds: float) -> list[Action]:
        self.now += seconds
        self.world.decide(self.now)
        return self.actions()

    def train(self, *aliases: str) -> list[Action]:
        """All of them come to the barrier, are released and enter `elastic.run`."""
        actions = [action for alias in aliases for action in self.joins(alias)]
        for alias in aliases:
            self.world.registered((alias, 0), self.now)
        return actions + self.actions()

    def actions(self) -> list[Action]:
        made = self.world.actions.drain()
        self.numbers.update({action.slot.key: action.number for action in made if isinstance(action, StartProcess)})
        return made


def notices(actions: list[Action]) -> int:
    return sum(isinstance(action, NotifyCoordinator) for action in actions)


def causes(actions: list[Action]) -> list[tuple[str, ...]]:
    return [tuple(map(str, action.causes)) for action in actions if isinstance(action, WorldResized)]


@pytest.fixture
def story() -> Iterator[Story]:
    made = Story()
    made.hosts(a=1, b=1)
    made.train("a", "b")
    yield made
    assert not made.world.finished


def test_the_survivors_of_a_death_are_not_notified_on_top(story: Story) -> None:
    """They find out from their broken connections; a notice that comes after they asked would cost a second reset."""
    assert notices(story.dies("b")) == 0
    assert notices(story.wait(0.1)) == 0
    story.asks("a")
    assert causes(story.joins("a")) == [("b[0] lost: signal 9 (SIGKILL)",)]
    assert notices(story.wait(1.0)) == 0


def test_a_worker_that_registers_after_a_death_brings_no_notice_forward() -> None:
    story = Story()
    story.hosts(a=1, b=1, c=1)
    for alias in "abc":
        story.joins(alias)
    story.world.registered(("a", 0), story.now)
    story.actions()
    assert notices(story.dies("c")) == 0
    story.now += 0.1
    story.world.registered(("b", 0), story.now)
    assert notices(story.actions()) == 0
    assert notices(story.wait(0.5)) == 1


def test_survivors_that_do_not_notice_a_death_are_notified_after_all(story: Story) -> None:
    story.dies("b")
    assert notices(story.wait(0.6)) == 1


def test_the_processes_of_a_new_host_join_together(story: Story) -> None:
    story.hosts(a=1, b=1, c=2)
    assert notices(story.joins("c", 0)) == 0
    story.now += 1.0
    assert notices(story.joins("c", 1)) == 1
    story.asks("a")
    story.asks("b")
    for alias, local_rank in [("a", 0), ("b", 0), ("c", 0)]:
        story.joins(alias, local_rank)
    assert causes(story.joins("c", 1)) == [("c joined",)]
    assert len(story.world.processes.slots) == 4


def test_a_newcomer_waits_for_another_only_for_a_moment(story: Story) -> None:
    story.hosts(a=1, b=1, c=1, d=1)
    assert notices(story.joins("c")) == 0
    assert notices(story.wait(2.1)) == 1


def test_a_removal_does_not_wait_for_newcomers(story: Story) -> None:
    story.hosts(a=1, b=1, c=1, d=1)
    story.joins("c")
    assert notices(story.hosts(a=1, c=1, d=1)) == 1


def test_a_notification_that_fails_is_repeated_after_a_pause(story: Story) -> None:
    """The coordinator's service may be gone for good: each attempt costs a connection."""
    assert notices(story.hosts(a=1)) == 1
    for _ in range(3):
        story.world.notified(delivered=False, now=story.now)
        assert notices(story.actions()) == 0
        assert story.world.actions.wake_at > story.now
        assert notices(story.wait(story.world.actions.wake_at - story.now)) == 1


def test_another_change_of_the_hosts_does_not_wait_for_the_repetition(story: Story) -> None:
    story.hosts(a=1, b=1, c=1, d=1)
    story.joins("c")
    assert notices(story.joins("d")) == 1
    story.world.notified(delivered=False, now=story.now)
    assert notices(story.hosts(a=1, b=1, c=1)) == 1


def test_a_reset_that_a_worker_wants_by_itself_says_so(story: Story) -> None:
    story.now += 1.0
    story.asks("b")
    story.now += 1.0
    story.asks("a")
    story.joins("a")
    assert causes(story.joins("b")) == [("asked for by rank 1",)]


def test_a_host_that_may_be_used_again_gets_a_new_process_while_the_others_stand_still() -> None:
    """Below the minimum no process steps: without it the job would wait for a host on which nothing is started."""
    story = Story(minimum=2)
    story.hosts(a=1, b=1)
    story.train("a", "b")
    story.world.exited(story.numbers["b", 0], int(Exit.HOST_CHANGE), story.now)
    story.asks("a")
    assert [action.slot.key for action in story.wait(3.0) if isinstance(action, StartProcess)] == [("b", 0)]
    story.joins("b")
    story.joins("a")
    assert len(causes(story.joins("b"))) == 1


def test_after_a_death_the_largest_allowed_size_trains_and_who_is_left_over_joins_again_with_another() -> None:
    story = Story(sizes=(1, 2, 4))
    story.hosts(a=1, b=1, c=1, d=1)
    assert causes(story.train("a", "b", "c", "d")) == [("a joined", "b joined", "c joined", "d joined")]
    story.dies("b")
    for alias in "acd":
        story.asks(alias)
    assert causes([*story.joins("a"), *story.joins("c")]) == [
        ("b[0] lost: signal 9 (SIGKILL)", "d is surplus"),
    ]
    story.world.exited(story.numbers["d", 0], int(Exit.REMOVED), story.now)
    started = [action.slot.key for action in story.hosts(a=1, c=1, d=1) if isinstance(action, StartProcess)]
    assert not started, "three are not an allowed size, so nobody else is started"
    started = [action.slot.key for action in story.hosts(a=1, c=1, d=1, e=1) if isinstance(action, StartProcess)]
    assert started == [("d", 0), ("e", 0)]
    assert notices(story.joins("d")) == 0
    assert notices(story.joins("e")) == 1
    for alias in "ac":
        story.asks(alias)
    assert causes([action for alias in "acde" for action in story.joins(alias)]) == [("d joined", "e joined")]


def test_below_the_smallest_size_training_waits() -> None:
    story = Story(minimum=2, sizes=(2, 4))
    story.hosts(a=1, b=1)
    story.train("a", "b")
    story.dies("b")
    story.asks("a")
    assert not causes(story.joins("a"))
    story.hosts(a=1, c=1)
    story.joins("c")
    story.joins("a")
    assert causes([*story.joins("c"), *story.joins("a")]) == [("b[0] lost: signal 9 (SIGKILL)", "c joined")]


def test_a_process_that_waited_at_the_barrier_must_show_that_it_is_alive(story: Story) -> None:
    """A newcomer killed a moment ago is not yet known to be dead: the others must not enter init with it."""
    story.hosts(a=1, b=1, c=1)
    story.joins("c")
    story.asks("a")
    formed = story.asks("b")
    assert [action.text for action in formed if isinstance(action, AnswerRequest)].count(JoinAnswer.WAIT) == 1
    story.joins("a")
    assert not causes(story.joins("b"))
    assert [action.text for action in story.dies("c") if isinstance(action, AnswerRequest)] == [JoinAnswer.AGAIN] * 2
    story.asks("a")
    story.asks("b")
    story.joins("a")
    assert causes(story.joins("b")) == [("c joined", "c[0] lost: signal 9 (SIGKILL)")]


def test_newcomers_are_waited_for_while_others_still_come(story: Story) -> None:
    """Of thousands that were sent back at once, the last comes long after the first."""

    def written_off(actions: list[Action]) -> int:
        return sum(isinstance(action, EndProcess) for action in actions)

    story.hosts(a=1, b=1, c=1, d=1)
    for newcomer in "cd":
        story.joins(newcomer)
    for member in "ab":
        story.asks(member)
    for member in "ab":
        assert written_off(story.wait(9.0)) == 0
        story.joins(member)
    assert written_off(story.wait(9.0)) == 0
    assert written_off(story.joins("c")) == 0
    assert written_off(story.wait(9.0)) == 0
    assert written_off(story.wait(1.0)) == 1, "nobody has come for ten seconds"


@pytest.mark.parametrize("asks", [Story.joins, Story.asks])
def test_a_request_that_is_open_at_a_death_is_answered(story: Story, asks: Callable[[Story, str], None]) -> None:
    """It holds a thread and a descriptor of the launcher, whose connection nobody reads any more."""
    story.hosts(a=1, b=1, c=1)
    asks(story, "c")
    ticket = story.tickets
    assert [action.ticket for action in story.dies("c") if isinstance(action, AnswerRequest)] == [ticket]


def test_a_newcomer_holds_the_state_once_it_has_synced() -> None:
    """If all others die before that, the job must restart from the checkpoint: the newcomer has nothing."""
    for has_synced, exit_code in ((True, None), (False, Exit.ALL_WORKERS_LOST)):
        story = Story()
        story.hosts(a=1)
        story.train("a")
        story.world.synced(("a", 0), story.now)
        story.hosts(a=1, b=1)
        story.joins("b")
        story.asks("a")
        story.joins("a")
        story.train("b")
        if has_synced:
            story.world.synced(("b", 0), story.now)
        story.dies("a")
        story.asks("b")
        codes = [action.exit_code for action in story.wait(10.0) if isinstance(action, FinishJob)]
        assert codes == ([] if exit_code is None else [exit_code])


def test_the_job_begins_again_when_every_host_is_taken_away(story: Story) -> None:
    """However often, and however long nothing comes back: to be preempted is no failure."""
    story.world.synced(("a", 0), story.now)
    for before, after in (("ab", "cd"), ("cd", "ef")):
        story.hosts()
        taken = [action for alias in before for action in story.dies(alias)] + story.wait(30_000.0)
        assert not [action for action in taken if isinstance(action, FinishJob)]
        begun = story.hosts(**dict.fromkeys(after, 1))
        assert [action.slot.host.alias for action in begun if isinstance(action, StartProcess)] == list(after)
        story.train(*after)
        story.world.synced((after[0], 0), story.now)


def test_the_first_that_is_left_of_those_that_hold_the_state_stores_it(story: Story) -> None:
    def stores(alias: str) -> bool:
        story.world.writer_asked((alias, 0), 9)
        (answer,) = story.actions()
        assert isinstance(answer, AnswerRequest)
        return answer.text == WriterAnswer.YES

    story.hosts(a=1, b=1, c=1)
    story.train("a", "b", "c")
    assert [stores(alias) for alias in ("a", "b", "c", "stranger")] == [True, False, False, False]
    story.dies("a")
    assert [stores(alias) for alias in ("a", "b", "c")] == [False, True, False]


def test_once_the_writer_has_left_with_a_durable_state_the_others_need_not_wait(story: Story) -> None:
    """Both hosts are taken away; only the writer knows that the commit they wait with is durable."""
    for alias in "ab":
        story.world.synced((alias, 0), story.now)
    story.hosts()
    story.asks("a")
    assert not [action for action in story.asks("b") if isinstance(action, AnswerRequest)]
    story.world.exited(story.numbers["a", 0], int(Exit.REMOVED), story.now)
    assert AnswerRequest(ticket=story.tickets, text=REMOVED_RESPONSE) in story.actions()
    story.world.exited(story.numbers["b", 0], int(Exit.REMOVED), story.now)
    begun = story.hosts(c=1)
    assert [action.slot.host.alias for action in begun if isinstance(action, StartProcess)] == ["c"]


@pytest.mark.parametrize(("leaves_after", "ends"), [(3.0, False), (10.0, True)])
def test_a_host_that_is_gone_a_moment_after_its_process_was_taken_away(leaves_after: float, ends: bool) -> None:
    """The processes of a lost node are known to be dead before discovery leaves the node out."""
    lost = Story()
    lost.hosts(a=1)
    lost.train("a")
    lost.world.synced(("a", 0), lost.now)
    lost.dies("a")
    actions = lost.wait(leaves_after) + lost.hosts() + lost.wait(60.0)
    assert bool([action for action in actions if isinstance(action, FinishJob)]) is ends


POD = "0a1b2c3d"


def _pods(story: Story, *aliases: str) -> list[Action]:
    story.world.hosts_seen(tuple(Host(alias=a, address="x", slots=1, pod=a) for a in aliases), story.now)
    return story.actions()


def test_a_pod_whose_process_dies_was_not_taken_away() -> None:
    """Its port closes until its next standby is warm, so it leaves the list. It comes back in its next generation."""
    lost = Story()
    first, second = f"{POD}-1", f"{POD}-2"
    _pods(lost, first)
    lost.train(first)
    lost.world.synced((first, 0), lost.now)
    lost.dies(first)
    actions = _pods(lost) + lost.wait(8.0)
    assert not [action for action in actions if isinstance(action, (FinishJob, FormWorld))]
    codes = [action.exit_code for action in _pods(lost, second) if isinstance(action, FinishJob)]
    assert codes == [Exit.ALL_WORKERS_LOST]


@pytest.mark.parametrize("comes", ["another pod", "nothing for half a minute", "one of two"])
def test_a_pod_that_does_not_come_back_was_taken_away(comes: str) -> None:
    lost = Story()
    first, other = f"{POD}-1", "ffffffff-1"
    _pods(lost, first, other)
    lost.train(first, other)
    for member in (first, other):
        lost.world.synced((member, 0), lost.now)
        lost.dies(member)
    actions = _pods(lost) + lost.wait(8.0)
    match comes:
        case "another pod":
            actions += _pods(lost, "eeeeeeee-1")
        case "nothing for half a minute":
            actions += lost.wait(30.0) + _pods(lost, f"{POD}-2")
        case "one of two":
            actions += _pods(lost, f"{POD}-2") + lost.wait(30.0)
    actions += lost.wait(1.0)
    assert not [action for action in actions if isinstance(action, FinishJob)]
    assert [action for action in actions if isinstance(action, FormWorld)]


def _crash_and_come_back(story: Story, generations: range, *, code: int = 139) -> list[FinishJob]:
    """Both processes fail before they have the state, and come back as the next generations of their pods."""
    for generation in generations:
        story.now += 400.0
        actions = _pods(story, f"aa-{generation}", f"bb-{generation}")
        started = [action for action in actions if isinstance(action, StartProcess)]
        for action in started:
            story.world.barrier_reached(action.slot.key, 1000 + action.number, story.now)
        story.now += 5.0
        for action in started:
            story.world.exited(action.number, code, story.now, "segmentation fault")
        finished = [action for action in actions + story.actions() if isinstance(action, FinishJob)]
        if finished:
            return finished
    return []


def test_the_reset_limit_counts_worlds_in_which_every_process_died() -> None:
    story = Story(minimum=2, reset_limit=3)
    (finish,) = _crash_and_come_back(story, range(1, 40))
    assert finish.exit_code == Exit.RESET_LIMIT
    assert story.world.resets == 3


def test_a_script_that_crashes_on_every_host_at_its_start_ends_the_job() -> None:
    story = Story(minimum=2)
    (finish,) = _crash_and_come_back(story, range(1, 40))
    assert finish.exit_code == Exit.ALL_WORKERS_LOST
    assert "5 worlds in a row" in finish.reason
    assert story.world.processes.generation == 5


def test_a_pod_that_crashes_again_and_again_is_used_less_and_less_often() -> None:
    """Each of its processes is a new host, and each of its deaths would cost the others a reset."""
    story = Story()
    _pods(story, "aa-1", "bb-1")
    story.train("aa-1", "bb-1")
    story.world.synced(("aa-1", 0), story.now)
    story.dies("bb-1")
    story.asks("aa-1")
    story.joins("aa-1")
    starts = list[float]()
    for generation in range(2, 3600):
        story.now += 1.0
        made = _pods(story, "aa-1", f"bb-{generation}")
        for action in made:
            if isinstance(action, StartProcess):
                starts.append(story.now)
                story.world.exited(action.number, 139, story.now + 0.5)
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert gaps[:7] == [1.0, 1.0, 11.0, 21.0, 41.0, 81.0, 161.0]
    assert set(gaps[7:]) == {301.0}
    assert story.world.blacklisted(story.now)


def test_a_pod_that_computes_wrongly_is_not_used_again() -> None:
    """A process that is started in its place would have the same memory."""
    story = Story()
    _pods(story, "aa-1", "bb-1", "cc-1")
    story.train("aa-1", "bb-1", "cc-1")
    story.world.synced(("aa-1", 0), story.now)
    story.world.exited(story.numbers["bb-1", 0], int(Exit.WORKER_DIFFERS), story.now)
    for alias in ("aa-1", "cc-1"):
        story.asks(alias)
        story.joins(alias)
    for _ in range(100):
        story.now += 1000.0
        assert not [made for made in _pods(story, "aa-1", "bb-2", "cc-1") if isinstance(made, StartProcess)]
    assert "bb-2" in story.world.blacklisted(story.now)


def test_a_pod_that_crashes_once_in_a_while_is_used_at_once() -> None:
    story = Story()
    _pods(story, "aa-1", "bb-1")
    story.train("aa-1", "bb-1")
    story.world.synced(("aa-1", 0), story.now)
    for generation in range(2, 10):
        story.dies(f"bb-{generation - 1}")
        story.asks("aa-1")
        story.joins("aa-1")
        story.now += 700.0
        assert any(isinstance(action, StartProcess) for action in _pods(story, "aa-1", f"bb-{generation}"))


class StockStory(Story):
    """Workers that know no barrier: they ask for a place once they have lost a world, and go on into `hvd.init()`."""

    def enters_init(self, rank: int) -> list[Action]:
        self.tickets += 1
        self.world.initialising(rank, self.tickets, self.now)
        return self.actions()

    def forms(self, *ranks: int) -> None:
        for rank in ranks:
            self.enters_init(rank)
        for slot in self.world.processes.slots:
            self.world.registered(slot.key, self.now)
        self.actions()


def _answers(actions: list[Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, AnswerRequest)]


def test_stock_workers_wait_in_init_for_the_slowest_import() -> None:
    """Gloo would give up after its time-out, and a process that Gloo gives up in hvd.init() ends."""
    story = StockStory(minimum=2)
    story.hosts(a=1, b=1)
    assert not _answers(story.enters_init(1))
    assert not _answers(story.wait(500.0))
    assert _answers(story.enters_init(0)) == ["", ""]


def test_stock_workers_wait_for_their_places_until_a_cold_newcomer_is_there() -> None:
    story = StockStory()
    story.hosts(a=1, b=1)
    story.forms(0, 1)
    started = story.hosts(a=1, b=1, c=1)
    started += story.asks("a") + story.asks("b")
    assert [action.slot.host.alias for action in started if isinstance(action, StartProcess)] == ["c"]
    assert not _answers(started + story.wait(100.0))
    assert sorted(_answers(story.enters_init(2))) == ["", "0,3,0,1,0,3", "1,3,0,1,1,3"]
    assert _answers(story.enters_init(0)) == [""], "nobody waits in a world that runs"


@pytest.mark.parametrize("ends", ["dies", "never comes"])
def test_a_cold_newcomer_that_does_not_come_costs_stock_workers_nothing(ends: str) -> None:
    """They have not been told of a world with it."""
    story = StockStory()
    story.hosts(a=1, b=1)
    story.forms(0, 1)
    story.hosts(a=1, b=1, c=1, d=1)
    story.asks("a")
    story.asks("b")
    assert not _answers(story.enters_init(2))
    actions = story.dies("d") if ends == "dies" else story.wait(121.0)
    # The newcomer in init has another place now, so it is started anew.
    actions += story.enters_init(2)
    assert [answer for answer in _answers(actions) if answer] == ["0,3,0,1,0,3", "1,3,0,1,1,3"]
    assert not any(isinstance(action, FinishJob) for action in actions)


def test_old_hosts_keep_their_order(story: Story) -> None:
    """Rank 0 stays on the oldest host, whatever order the source reports."""
    story.hosts(d=1, b=1, c=1, a=1)
    for newcomer in "dc":
        story.joins(newcomer)
    for member in "ab":
        story.asks(member)
    assert [slot.host.alias for slot in story.world.processes.slots] == ["a", "b", "d", "c"]


def test_nobody_is_started_once_the_script_has_ended_somewhere(story: Story) -> None:
    """A rank may still have work to do; the places of the others stay free."""
    story.world.exited(story.numbers["b", 0], 0, story.now)
    assert not any(isinstance(action, StartProcess) for action in story.actions() + story.wait(10.0))
    assert not story.world.blacklisted(story.now)


def test_slots_that_only_hand_the_state_over_do_not_count_as_slots() -> None:
    story = Story(minimum=2, elastic_timeout=600.0)
    story.hosts(a=1, b=1)
    story.train("a", "b")
    story.hosts(c=1)
    story.joins("c")
    story.asks("a")
    story.asks("b")
    (finish,) = [action for action in story.wait(601.0) if isinstance(action, FinishJob)]
    assert finish.reason.startswith("1 of 2 needed slots for 600 s")


def test_two_weeks_of_lost_pods_leave_nothing_behind() -> None:
    """One of four pods is lost each ten minutes, and another one comes in its place."""
    story, pods, blocks = Story(), list("abcd"), list[int]()

    def listed() -> list[Action]:
        hosts = tuple(Host(alias=f"{uid}-1", address="x", slots=1, pod=f"w{uid}") for uid in pods)
        story.world.hosts_seen(hosts, story.now)
        return story.actions()

    listed()
    story.train(*(f"{uid}-1" for uid in pods))
    for number in range(2016):
        story.dies(f"{pods.pop(0)}-1")
        pods.append(f"uid{number}")
        listed()
        for uid in pods[:-1]:
            story.asks(f"{uid}-1")
        resized = story.train(*(f"{uid}-1" for uid in pods))
        assert causes(resized)
        del story.numbers[next(iter(story.numbers))]
        story.wait(600.0)
        assert len(story.world.blacklisted(story.now)) <= 2
        if number in {500, 2000}:
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    assert not story.world.finished
    assert blocks[1] - blocks[0] < 150, "less than an object for each tenth"
