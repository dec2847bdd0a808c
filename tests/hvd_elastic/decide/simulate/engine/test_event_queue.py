"""What happens when, and what no longer does."""

from collections.abc import Iterator
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.engine.event_queue import EventQueue, TimedAction


def _note(seen: list[int], place: int, _now: float) -> None:
    seen.append(place)


@given(seconds=st.lists(st.integers(0, 5).map(float), max_size=20), data=st.data())
def test_what_is_not_cancelled_happens_in_order(seconds: list[float], data: st.DataObject) -> None:
    queue, seen = EventQueue(), list[int]()
    numbers = [queue.at(second, partial(_note, seen, place)) for place, second in enumerate(seconds)]
    places = range(len(seconds))
    cancelled = data.draw(st.sets(st.sampled_from(places))) if seconds else set()
    for place in cancelled:
        queue.cancel(numbers[place])
    while (now := queue.next_second()) < float("inf"):
        queue.pop()(now)
    assert seen == sorted(set(places) - cancelled, key=lambda place: (seconds[place], place))


def test_a_timer_that_is_set_anew_again_and_again_takes_the_room_of_one() -> None:
    queue = EventQueue()
    queue.at(5.0, lambda _now: None)
    for second in range(10_000):
        queue.cancel(queue.at(1e6 + second, lambda _now: None))
    assert len(queue) <= 2
    assert queue.next_second() == 5.0


def test_what_is_known_is_read_as_it_happens_and_comes_first_in_its_second() -> None:
    seen, read = list[str](), list[float]()

    def known() -> Iterator[tuple[float, TimedAction]]:
        for second in (1.0, 2.0, 2.0, 9.0):
            read.append(second)
            yield second, lambda now: seen.append(f"known at {now:g}")

    queue = EventQueue(known())
    queue.at(2.0, lambda now: seen.append(f"set for {now:g}"))
    while (now := queue.next_second()) < 5:
        queue.pop()(now)
        assert len(read) <= len(seen) + 1
    assert seen == ["known at 1", "known at 2", "known at 2", "set for 2"]


def test_to_cancel_what_has_happened_is_nothing() -> None:
    queue = EventQueue()
    first, _ = queue.at(1.0, lambda _now: None), queue.at(2.0, lambda _now: None)
    queue.pop()
    queue.cancel(first)
    assert queue.next_second() == 2.0
