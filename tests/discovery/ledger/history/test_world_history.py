"""One resize is one entry, with its cost where rank 0 tells it."""

from collections.abc import Iterator

import pytest

from hvd_elastic.discovery.ledger.entries import Entry, WorkerProcessLost, WorldChanged
from hvd_elastic.discovery.ledger.history.world_history import WorldHistory
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.training_figures import ResizePause, TrainingFigures
from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.mpijob.contract import Exit, WorkerState

TRAINING, WAITING, LEAVING = WorkerState.TRAINING, WorkerState.WAITING, WorkerState.LEAVING


class Told:
    """A history, and what it has told so far."""

    def __init__(self, history: WorldHistory) -> None:
        self.history = history
        self.entries: list[Entry] = []

    def say(self, now: float, state: WorkerState, *pods: str, generation: int = 0) -> None:
        for pod in pods:
            self.history.take_answer(pod, f"uid-{pod}", WorkerView(state=state, generation=generation), now)

    def figures(
        self,
        now: float,
        *,
        of: str = "w0",
        step: int = 10,
        size: int = 2,
        pauses: tuple[ResizePause, ...] = (),
        began: tuple[int, float | None] = (-1, None),
    ) -> None:
        known = TrainingFigures(unix=now, step=step, size=size, pauses=pauses, began_step=began[0], began=began[1])
        self.write(self.history.take_figures(f"uid-{of}", known, now))

    def wait(self, *times: float) -> None:
        for now in times:
            self.write(self.history.pass_time(now))

    def ended(self, now: float, pod: str, seconds: float, **known: object) -> None:
        self.history.take_exit(f"uid-{pod}", ProcessExit(seconds=seconds, **known), now)  # type: ignore[arg-type]

    @property
    def losses(self) -> list[WorkerProcessLost]:
        return [entry for entry in self.entries if isinstance(entry, WorkerProcessLost)]

    def write(self, entries: Iterator[Entry]) -> None:
        self.entries += entries

    @property
    def worlds(self) -> list[tuple[float, tuple[str, ...]]]:
        return [(entry.unix, entry.workers) for entry in self.entries if isinstance(entry, WorldChanged)]


def pause(end: float, seconds: float, size: int, *, step: int = 20, repeated: int = 0) -> ResizePause:
    return ResizePause(unix=end, seconds=seconds, from_size=0, to_size=size, step=step, repeated=repeated)


@pytest.fixture
def told() -> Told:
    return Told(WorldHistory())


def test_a_script_that_has_not_come_into_training_yet_may_still_end_before_it(told: Told) -> None:
    told.say(1.0, TRAINING, "w0")
    told.wait(1.0, 60.0)
    told.say(60.0, WAITING, "w0", generation=1)
    told.wait(60.0, 62.0)
    assert told.worlds == []
    assert not told.history.has_run
    told.say(63.0, TRAINING, "w0", generation=1)
    told.wait(63.0, 123.0)
    assert told.worlds == [(123.0, ("w0",))], "of a launcher that tells nothing"


def test_the_last_figures_count_unless_others_were_heard_of_after_them(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0, step=7)
    for unix, step in ((0.5, 3), (1.5, 9)):
        told.write(told.history.take_last_figures(TrainingFigures(unix=unix, step=step, size=2), 2.0))
    assert told.history.figures is not None
    assert (told.history.figures.step, told.history.rank0) == (9, "uid-w0")
    assert told.history.has_run


def test_without_figures_a_change_counts_when_it_has_lasted(told: Told) -> None:
    told.history.has_registered = True
    told.say(1.0, WAITING, "w0", "w1")
    told.wait(1.0, 50.0)
    assert told.worlds == []
    told.say(50.0, TRAINING, "w0", "w1")
    told.wait(50.0, 54.0)
    assert told.worlds == []
    told.wait(55.0)
    told.say(60.0, TRAINING, "w2")
    told.wait(60.0)
    told.say(61.0, WAITING, "w2")
    told.wait(61.0, 66.0)
    assert told.worlds == [(55.0, ("w0", "w1"))]


def test_with_figures_a_resize_is_told_with_its_cost(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.wait(1.0)
    told.figures(2.0)
    assert told.entries == [WorldChanged(unix=2.0, workers=("w0", "w1"), step=10)]
    told.say(20.0, TRAINING, "w2")
    told.wait(20.0, 30.0)
    told.figures(31.0, size=3, pauses=(pause(30.5, 4.0, 3, step=30, repeated=2),))
    expected = WorldChanged(unix=30.5, workers=("w0", "w1", "w2"), step=30, pause_seconds=4.0, repeated_steps=2)
    assert told.entries[1:] == [expected]
    told.figures(32.0, size=3, pauses=(pause(30.5, 4.0, 3),))
    told.figures(33.0, of="w1", size=3, pauses=(pause(30.6, 4.1, 3),))
    told.wait(33.0, 200.0)
    assert told.entries[1:] == [expected], "a pause is told once, whoever tells it"


def test_one_that_is_to_leave_trains_until_the_others_go_on_without_it(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0)
    told.say(5.0, LEAVING, "w1")
    told.wait(5.0, 30.0)
    assert len(told.entries) == 1
    told.figures(31.0, size=1, pauses=(pause(30.5, 1.0, 1),))
    assert told.worlds[1:] == [(30.5, ("w0",))]
    told.wait(32.0, 200.0)
    told.history.remove("uid-w1")
    told.wait(201.0, 400.0)
    assert len(told.entries) == 2


def test_a_resize_is_told_once_the_states_tell_who_has_left(told: Told) -> None:
    """A worker whose process has left still counts as training until it misses its probes."""
    told.say(1.0, TRAINING, "w0", "w1", "w2")
    told.figures(1.0, size=3)
    smaller = (pause(10.0, 0.2, 1),)
    told.figures(11.0, size=1, pauses=smaller)
    told.wait(11.0)
    assert len(told.worlds) == 1
    assert told.history.is_unsettled
    told.say(14.0, WAITING, "w1", "w2", generation=1)
    told.figures(15.0, size=1, pauses=smaller)
    assert told.worlds[1:] == [(10.0, ("w0",))]
    bigger = (*smaller, pause(20.0, 0.2, 3))
    told.figures(21.0, size=3, pauses=bigger)
    told.figures(36.0, size=3, pauses=bigger)
    assert told.worlds[2:] == [(20.0, ("w0",))], "states that never tell it are not waited for"


def test_a_world_that_is_over_before_it_was_seen_is_no_entry_of_other_workers(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1", "w2")
    told.figures(1.0, size=3)
    passed = (pause(10.0, 1.0, 2, repeated=2), pause(10.5, 0.25, 1), pause(11.5, 0.5, 3, step=25))
    told.figures(12.0, size=3, pauses=passed)
    (entry,) = told.entries[1:]
    assert entry == WorldChanged(unix=11.5, workers=("w0", "w1", "w2"), step=25, pause_seconds=1.75, repeated_steps=2)
    told.figures(13.0, size=3, pauses=passed)
    assert len(told.entries) == 2


def test_a_process_is_lost_though_the_others_have_gone_on_without_it(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0)
    told.history.take_answer("w1", "uid-w1", WorkerView(state=TRAINING, lost=True), 4.0)
    told.figures(5.0, size=1, pauses=(pause(4.5, 1.0, 1),))
    assert told.worlds[1:] == [(4.5, ("w0",))]
    told.say(9.0, WAITING, "w1", generation=1)
    told.wait(14.0)
    assert [loss.pod for loss in told.losses] == ["w1"]


def test_a_process_that_never_came_into_a_world_is_not_lost(told: Told) -> None:
    told.say(1.0, TRAINING, "w0")
    told.figures(1.0, size=1)
    told.say(2.0, TRAINING, "w1")
    told.say(3.0, WAITING, "w1", generation=1)
    told.wait(60.0)
    assert not told.losses


@pytest.mark.parametrize("seen", [TRAINING, WAITING])
def test_a_process_that_ends_of_itself_before_its_world_was_seen_is_lost(told: Told, seen: WorkerState) -> None:
    told.say(1.0, seen, "w0", "w1")
    told.say(3.0, WAITING, "w1", generation=1)
    assert told.history.unexplained() == ["uid-w1"]
    told.ended(3.5, "w1", 1.25, code=137, oom=True)
    told.wait(8.0)
    expected = WorkerProcessLost(unix=2.25, pod="w1", uid="uid-w1", detail="killed by SIGKILL: out of memory")
    assert told.losses == [expected]


@pytest.mark.parametrize(
    "end",
    [{"code": 143, "told": True}, {"code": Exit.HOST_CHANGE}, {"code": 0}, {"code": 137, "seconds": 9.0}],
    ids=["told", "rendezvous gone", "done", "an earlier process"],
)
def test_a_process_of_no_world_that_was_ended_or_is_another_is_not_lost(told: Told, end: dict[str, float]) -> None:
    told.say(1.0, WAITING, "w0", "w1")
    told.say(3.0, WAITING, "w1", generation=1)
    told.ended(3.5, "w1", **{"seconds": 1.25, **end})
    assert told.history.unexplained() == []
    told.wait(60.0)
    assert not told.losses


def test_a_replaced_process_is_a_resize_and_a_loss(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0)
    told.say(5.0, WAITING, "w1", generation=1)
    told.say(7.0, TRAINING, "w1", generation=1)
    told.wait(7.0)
    told.figures(8.0, pauses=(pause(7.5, 2.0, 2),))
    told.wait(10.0)
    assert told.worlds[1:] == [(7.5, ("w0", "w1"))]
    assert told.entries[-1] == WorkerProcessLost(unix=5.0, pod="w1", uid="uid-w1")


def test_a_lost_process_is_told_with_how_it_ended_and_when(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1", "w2")
    told.figures(1.0, size=3)
    told.say(15.0, WAITING, "w1", "w2", generation=1)
    assert told.history.unexplained() == ["uid-w1", "uid-w2"]
    told.ended(15.5, "w1", 6.25, code=139)
    assert told.history.unexplained() == ["uid-w2"]
    told.wait(20.0)
    assert told.losses == [
        WorkerProcessLost(unix=9.25, pod="w1", uid="uid-w1", detail="killed by SIGSEGV"),
        WorkerProcessLost(unix=15.0, pod="w2", uid="uid-w2"),
    ]


def test_a_process_that_was_told_to_leave_is_not_lost(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0)
    told.say(5.0, WAITING, "w1", generation=1)
    told.ended(5.5, "w1", 3.0, code=Exit.REMOVED)
    told.wait(60.0)
    assert not told.losses


def test_steps_that_are_done_again_after_the_loss_of_all(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0, step=10)
    told.figures(9.0, step=90)
    told.say(12.0, WAITING, "w0", "w1", generation=1)
    told.ended(12.0, "w0", 1.0, code=137, step=110)
    told.wait(12.0, 14.0)
    told.say(20.0, TRAINING, "w0", "w1", generation=1)
    told.figures(22.0, step=75, began=(70, 21.0))
    assert told.entries[-1] == WorldChanged(unix=22.0, workers=("w0", "w1"), step=70, repeated_steps=40)


def test_the_next_sidecar_knows_what_was_reached() -> None:
    """From the ledger, and from workers whose processes have ended since; an end before that says nothing."""
    before = [WorldChanged(unix=50.0, workers=("w0",), step=40), WorldChanged(unix=60.0, workers=(), step=80)]
    told = Told(WorldHistory.resume(before))
    told.ended(70.0, "w0", 30.0, code=137, step=500)
    told.ended(70.0, "w1", 10.5, code=137, step=85)
    told.say(70.0, TRAINING, "w0", "w1")
    told.figures(71.0, step=83, began=(79, 70.5))
    assert told.entries == [WorldChanged(unix=71.0, workers=("w0", "w1"), step=79, repeated_steps=6)]


@pytest.mark.parametrize(("written", "repeated"), [(62.0, 21), (55.0, 0)])
def test_the_live_status_knows_what_was_reached_after_the_ledgers_last_entry(written: float, repeated: int) -> None:
    """All workers and the sidecar went at once, so nobody else does. One of an earlier world says nothing."""
    live = LiveStatus(unix=written, activity=Activity.TRAINING, since=50.0, step=100)
    told = Told(WorldHistory.resume([WorldChanged(unix=60.0, workers=("w0",), step=79)], told=live))
    told.say(70.0, WAITING, "w0")
    told.wait(70.0, 72.0)
    told.say(80.0, TRAINING, "w0")
    told.figures(81.0, step=83, began=(79, 80.5))
    assert told.entries[-1] == WorldChanged(unix=81.0, workers=("w0",), step=79, repeated_steps=repeated)


def test_a_process_that_lives_on_repeats_nothing() -> None:
    """Nobody answered for a while, so the ledger says that nobody trained; but they did."""
    before = [WorldChanged(unix=50.0, workers=("w0",), step=40), WorldChanged(unix=60.0, workers=(), step=80)]
    told = Told(WorldHistory.resume(before))
    told.say(70.0, TRAINING, "w0")
    told.figures(71.0, step=110, size=1, began=(0, 20.0))
    assert told.entries == [WorldChanged(unix=71.0, workers=("w0",), step=110)]


def test_processes_that_end_with_their_job_are_not_lost(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0)
    told.say(5.0, WAITING, "w0", "w1", generation=1)
    told.write(told.history.end(6.0))
    told.wait(60.0)
    assert told.worlds[1:] == [(6.0, ())]
    assert not any(isinstance(entry, WorkerProcessLost) for entry in told.entries)


def test_nobody_trains_and_somebody_again(told: Told) -> None:
    told.say(1.0, TRAINING, "w0", "w1")
    told.figures(1.0)
    told.say(10.0, WAITING, "w0", "w1", generation=1)
    told.wait(10.0, 12.0)
    told.say(20.0, TRAINING, "w0", generation=1)
    told.history.take_figures("uid-w0", TrainingFigures(unix=9.0, step=12), 21.0)
    told.wait(21.0)
    assert told.worlds[1:] == [(12.0, ())], "what an earlier process has written says nothing of a new world"
    told.figures(22.0, size=1)
    assert told.worlds[1:] == [(12.0, ()), (22.0, ("w0",))]


def test_a_sidecar_that_starts_again_waits_for_the_workers_answers() -> None:
    before = WorldChanged(unix=50.0, workers=("w0", "w1"), pause_seconds=3.0)
    told = Told(WorldHistory.resume([before]))
    told.wait(100.0, 110.0)
    told.say(111.0, TRAINING, "w0", "w1")
    told.wait(112.0)
    told.figures(113.0, pauses=(pause(50.2, 3.1, 2),))
    told.wait(200.0)
    assert told.entries == []


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_a_workers_clock_loses_no_pause_and_tells_none_twice(told: Told, step: float) -> None:
    """Its times are another clock's from then on. What it says of its age is not."""

    def figures(now: float, size: int, *pauses: ResizePause, of: str = "w0", shift: float = 0.0) -> None:
        known = TrainingFigures(unix=now + shift, step=10, size=size, pauses=pauses, age=0.0, began=0.5)
        told.write(told.history.take_figures(f"uid-{of}", known, now))

    told.say(1.0, TRAINING, "w0", "w1", "w2")
    figures(1.0, 3)
    first = pause(100.0, 2.0, 2)
    told.history.remove("uid-w2")
    figures(101.0, 2, first)
    told.history.remove("uid-w1")
    second = pause(200.0 + step, 3.0, 1)
    figures(201.0, 1, first, second, shift=step)
    figures(206.0, 1, first, second, shift=step)
    told.say(300.0, TRAINING, "w1")
    third = pause(300.0 + step, 4.0, 2)
    told.say(300.0, WAITING, "w1")
    figures(301.0, 2, first, second, third, shift=step)
    assert len(told.worlds) == 3, "who trains is not known yet"
    told.say(302.0, TRAINING, "w1")
    figures(303.0, 2, first, second, third, shift=step)
    costs = [entry.pause_seconds for entry in told.entries if isinstance(entry, WorldChanged)]
    assert costs == [None, 2.0, 3.0, 4.0]
    assert told.history.written == 303.0


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_figures_of_a_new_world_are_told_from_those_of_before_by_their_age(told: Told, step: float) -> None:
    told.say(1.0, TRAINING, "w0")
    told.figures(1.0, size=1)
    told.say(100.0, WAITING, "w0", generation=1)
    told.wait(100.0, 102.0)
    told.say(110.0, TRAINING, "w0", generation=1)
    left = TrainingFigures(unix=99.0 + step, step=10, size=1, age=12.0)
    told.write(told.history.take_figures("uid-w0", left, 111.0))
    assert told.worlds[1:] == [(102.0, ())]
    fresh = TrainingFigures(unix=112.0 + step, step=11, size=1, age=0.0, began=105.0 + step, began_step=8)
    told.write(told.history.take_figures("uid-w0", fresh, 112.0))
    last = told.entries[-1]
    assert isinstance(last, WorldChanged)
    assert (last.workers, last.step, last.repeated_steps) == (("w0",), 8, 2)
