"""What the ledger tells of a step's time at each size."""

from dataclasses import replace

import pytest

from hvd_elastic.client.profile.measured_sizes import MeasuredSize, measured_sizes, why_unmeasured
from hvd_elastic.discovery.ledger.account import summed_up
from hvd_elastic.discovery.ledger.entries import Entry, LauncherEnded, LauncherStarted, WorkerBound, WorldChanged
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus


def bound(pod: str, node: str, unix: float = 0.0) -> WorkerBound:
    return WorkerBound(unix=unix, pod=pod, uid=f"{pod}-{unix}", node=node)


def world(unix: float, size: int, step: int, *, pause: float | None = 2.0, repeated: int = 0) -> WorldChanged:
    workers = tuple(f"w-{index}" for index in range(size))
    return WorldChanged(unix=unix, workers=workers, step=step, pause_seconds=pause, repeated_steps=repeated)


STARTED = LauncherStarted(unix=0.0, pod="l", uid="l")
BOUND = [bound("w-0", "a"), bound("w-1", "a"), bound("w-2", "b"), bound("w-3", "b")]
BEGUN: list[Entry] = [STARTED, *BOUND, world(10.0, 1, 0, pause=None)]


def test_steps_and_time_of_each_size() -> None:
    ledger = [*BEGUN, world(212.0, 2, 200), world(264.0, 4, 300), world(306.0, 2, 400), world(358.0, 1, 500)]
    assert measured_sizes(ledger) == (
        MeasuredSize(workers=1, nodes=1, steps=200, seconds=200.0),
        MeasuredSize(workers=2, nodes=1, steps=200, seconds=100.0),
        MeasuredSize(workers=4, nodes=2, steps=100, seconds=40.0),
    )


def test_repeated_steps_took_their_time_too() -> None:
    ledger = [*BEGUN, world(212.0, 2, 200), world(264.0, 1, 295, repeated=5)]
    assert measured_sizes(ledger)[1].steps == 100


def test_a_pod_that_came_back_on_another_node() -> None:
    ledger = [*BEGUN, world(212.0, 2, 200), world(264.0, 1, 300), bound("w-1", "b", 270.0), world(366.0, 2, 400)]
    assert [(one.workers, one.nodes) for one in measured_sizes([*ledger, world(418.0, 1, 500)])] == [
        (1, 1),
        (2, 1),
        (2, 2),
    ]


@pytest.mark.parametrize(
    "blurred",
    [
        [world(100.0, 2, 90)],
        [world(100.0, 2, -1), world(200.0, 1, 100)],
        [LauncherEnded(unix=90.0, pod="l", uid="l"), world(90.0, 0, 80, pause=None)],
        [replace(STARTED, unix=500.0), world(900.0, 2, 800)],
    ],
    ids=["too short for what was seen from outside", "no step", "an end that is not sharp", "a launcher in between"],
)
def test_what_is_not_known_well_does_not_count(blurred: list[Entry]) -> None:
    assert measured_sizes([*BEGUN, *blurred]) == ()


@pytest.mark.parametrize(
    ("entries", "status", "why"),
    [
        ([STARTED, *BOUND], {}, "it has not trained yet"),
        ([*BEGUN, world(100.0, 2, -1), world(900.0, 1, -1)], {"step": -1}, "none of its steps is known"),
        ([*BEGUN, world(900.0, 2, 7), world(1700.0, 1, 12)], {"step": -1}, "of its 3 worlds none had 10 steps"),
        ([*BEGUN, world(60.0, 2, 90)], {"step": -1}, "of its 2 worlds none both began and ended at a known moment"),
        (BEGUN, {"workers": 1, "step": 4, "stepped": 400.0}, "of its 1 world none had 10 steps without a resize"),
    ],
    ids=["never trained", "no steps", "slow steps", "short and blurred", "has just begun"],
)
def test_why_nothing_was_measured(entries: list[Entry], status: dict[str, object], why: str) -> None:
    assert measured_sizes(entries, live(**status)) == ()
    assert why_unmeasured(entries, live(**status)).startswith(why)


def test_a_shortened_ledger_gives_no_world_that_never_was() -> None:
    ledger = [*BEGUN, world(212.0, 2, 200), world(264.0, 4, 300)]
    totals, rest = summed_up(ledger)
    later = world(306.0, 2, 400)
    assert measured_sizes([totals, *rest]) == ()
    assert measured_sizes([totals, *rest, later]) == (MeasuredSize(workers=4, nodes=2, steps=100, seconds=40.0),)


def live(**fields: object) -> LiveStatus:
    made = LiveStatus(unix=500.0, activity=Activity.TRAINING, since=212.0, workers=2, step=500, stepped=512.0)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_the_world_that_goes_on() -> None:
    ledger = [*BEGUN, world(212.0, 2, 200)]
    assert measured_sizes(ledger, live())[1] == MeasuredSize(workers=2, nodes=1, steps=300, seconds=300.0)


def test_a_world_that_has_just_begun_has_the_rate_that_training_reports() -> None:
    ledger = [*BEGUN, world(212.0, 2, 200)]
    found = measured_sizes(ledger, live(step=250, stepped=240.0, steps_per_second=2.0))
    assert found[1] == MeasuredSize(workers=2, nodes=1, steps=60, seconds=30.0)


@pytest.mark.parametrize("other", [{"workers": 3}, {"activity": Activity.STALLED}, {"step": -1}])
def test_a_status_of_another_world_does_not_count(other: dict[str, object]) -> None:
    assert len(measured_sizes([*BEGUN, world(212.0, 2, 200)], live(**other))) == 1
