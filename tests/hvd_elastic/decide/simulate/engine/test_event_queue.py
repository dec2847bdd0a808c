"""What happens when, and what no longer does."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.engine.event_queue import EventQueue


@given(seconds=st.lists(st.integers(0, 5).map(float), max_size=20), data=st.data())
def test_what_is_not_cancelled_happens_in_order(seconds: list[float], data: st.DataObject) -> None:
    queue, seen = EventQueue(), list[int]()
    numbers = [queue.at(second, lambda _now, place=place: seen.append(place)) for place, second in enumerate(seconds)]  # type: ignore[misc]
    places = range(len(seconds))
    cancelled = data.draw(st.sets(st.sampled_from(places))) if seconds else set()
    for place in cancelled:
        queue.cancel(numbers[place])
    while (now := queue.next_second()) < float("inf"):
        queue.pop()(now)
    assert seen == sorted(set(places) - cancelled, key=lambda place: seconds[place])


def test_a_timer_that_is_set_anew_again_and_again_takes_the_room_of_one() -> None:
    queue = EventQueue()
    queue.at(5.0, lambda _now: None)
    for second in range(10_000):
        queue.cancel(queue.at(1e6 + second, lambda _now: None))
    assert len(queue) <= 2
    assert queue.next_second() == 5.0


def test_to_cancel_what_has_happened_is_nothing() -> None:
    queue = EventQueue()
    first, _ = queue.at(1.0, lambda _now: None), queue.at(2.0, lambda _now: None)
    queue.pop()
    queue.cancel(first)
    assert queue.next_second() == 2.0
