"""Of a job's sizes a bounded number is kept."""

import gc
import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.outcome import MOST_CHANGES, SizeChange, SizeHistory

moments = st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 4)), max_size=60)


def history(noted: list[tuple[float, int]]) -> SizeHistory:
    found = SizeHistory()
    for second, workers in noted:
        found.note(second, workers)
    return found


@given(moments)
def test_each_change_is_kept_as_long_as_there_are_few(drawn: list[tuple[float, int]]) -> None:
    noted = sorted(drawn)
    changed = [now for before, now in zip([(0.0, -1), *noted], noted, strict=False) if before[1] != now[1]]
    found = history(noted)
    assert [(change.second, change.workers) for change in found.changes()] == changed
    assert found.count == len(changed)


def test_a_year_takes_the_room_of_a_day() -> None:
    """A change each ten minutes: what is kept has the shape of the whole year, and its end."""
    year = [(600.0 * number, number % 7) for number in range(52_560)]
    found = history(year)
    kept = list(found.changes())
    assert MOST_CHANGES / 4 < len(kept) <= MOST_CHANGES
    assert kept[-1] == SizeChange(second=year[-1][0], workers=year[-1][1])
    assert [change.second for change in kept] == sorted(change.second for change in kept)
    stretch = year[-1][0] / (MOST_CHANGES / 8)
    assert all(later.second - one.second <= stretch for one, later in pairwise(kept))
    assert found.count == len(year)


def test_a_year_of_several_jobs_takes_twelve_bytes_a_change() -> None:
    jobs, hours = 5, 8760
    tracemalloc.start()
    try:
        histories = [history([(3600.0 * hour, hour % 7) for hour in range(hours)]) for _ in range(jobs)]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert {found.count for found in histories} == {hours}
    assert held < jobs * (MOST_CHANGES * 14 + 1024)
