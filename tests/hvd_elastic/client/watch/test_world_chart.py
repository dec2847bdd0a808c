"""The chart of the world's size: what each column shows, and that no dip hides."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.watch.world_chart import LETTERS, PROCESS_LOST, Window, chart, column_sizes, legend, losses
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)


def world(unix: float, size: int) -> WorldChanged:
    return WorldChanged(unix=unix, workers=tuple(f"w-{index}" for index in range(size)))


def test_a_column_shows_the_least_size_within_it() -> None:
    entries = [world(0, 4), world(51, 1), world(52, 4), world(75, 2)]
    assert column_sizes(entries, Window(end=100, seconds=100, width=10)) == [4, 4, 4, 4, 4, 1, 4, 2, 2, 2]


def test_what_was_before_the_window_goes_on_in_it() -> None:
    assert column_sizes([world(0, 3)], Window(end=1000, seconds=100, width=4)) == [3, 3, 3, 3]


def test_a_job_that_has_ended_trains_no_longer() -> None:
    entries: list[Entry] = [world(0, 3), JobEnded(unix=50, succeeded=True)]
    assert column_sizes(entries, Window(end=100, seconds=100, width=4)) == [3, 3, 0, 0]


def test_each_loss_has_its_letter() -> None:
    entries: list[Entry] = [
        WorkerLeaving(unix=10, pod="a", uid="a", why=Departure.PREEMPTED),
        WorkerProcessLost(unix=55, pod="b", uid="b"),
        WorkerLeaving(unix=-10, pod="c", uid="c", why=Departure.EVICTED),
        WorkerLeaving(unix=999, pod="d", uid="d", why=Departure.DRAINED),
    ]
    assert losses(entries, Window(end=100, seconds=100, width=10)) == " P   K    "


def test_each_departure_is_in_the_legend() -> None:
    assert set(LETTERS) == set(Departure)
    assert all(legend(letter).startswith(f"{letter} ") for letter in (*LETTERS.values(), PROCESS_LOST))
    assert legend("  P  K P ") == "P preempted  K process lost"


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 64)), max_size=30),
    st.integers(10, 200),
    st.integers(1, 12),
    st.integers(1, 64),
)
def test_a_chart_has_its_size(changes: list[tuple[float, int]], width: int, height: int, highest: int) -> None:
    entries = [world(unix, size) for unix, size in sorted(changes)]
    rows = chart(entries, Window(end=1e6, seconds=5e5, width=width), highest=highest, height=height)
    assert [len(row) for row in rows] == [width] * (height + 1)


def test_a_full_world_fills_the_chart_and_none_leaves_it_empty() -> None:
    window = Window(end=10, seconds=10, width=2)
    assert chart([world(0, 4)], window, highest=4, height=2) == ["██", "██", "  "]
    assert chart([world(0, 2)], window, highest=4, height=2) == ["  ", "██", "  "]
    assert chart([world(0, 0)], window, highest=4, height=2) == ["  ", "  ", "  "]
