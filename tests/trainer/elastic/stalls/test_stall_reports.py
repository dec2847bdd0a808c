"""When a rank says that it gets on with nothing, over any order of spells and looks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.collectives.collective_calls import Occupation
from hvd_elastic.trainer.elastic.stalls.stall_reports import StallReport, StallReports

AFTER = 30.0


def spell(number: int, since: float, operation: str = "") -> Occupation:
    return Occupation(number=number, since=since, operation=operation)


def test_a_wait_is_told_once_it_is_long_again_when_doubled_and_when_it_is_over() -> None:
    reports = StallReports(AFTER)
    wait = spell(1, 100.0, "allreduce w")
    assert reports.look(wait, 129.0) == []
    assert reports.look(wait, 130.0) == [StallReport(seconds=30.0, operation="allreduce w")]
    assert reports.look(wait, 159.0) == []
    assert reports.look(wait, 160.0) == [StallReport(seconds=60.0, operation="allreduce w")]
    over = StallReport(seconds=70.0, operation="allreduce w", is_over=True)
    assert reports.look(spell(2, 170.0), 171.0) == [over]
    assert reports.look(spell(2, 170.0), 172.0) == []


def test_many_short_operations_are_no_stall() -> None:
    reports = StallReports(AFTER)
    for number in range(100):
        assert reports.look(spell(number, float(number), "allreduce w"), number + 0.5) == []


def test_an_evaluation_of_every_epoch_is_told_once() -> None:
    reports = StallReports(AFTER)
    told = []
    for epoch in range(10):
        began = epoch * 1000.0
        told += [reports.look(spell(2 * epoch, began), began + seconds) for seconds in (10.0, 40.0)]
        told += [reports.look(spell(2 * epoch + 1, began + 45.0, "allreduce w"), began + 45.1)]
    assert [report for reports in told for report in reports] == [
        StallReport(seconds=40.0, operation=""),
        StallReport(seconds=45.0, operation="", is_over=True),
    ]
    assert reports.look(spell(99, 20_000.0), 20_091.0), "twice as long is news"


def test_what_is_not_watched_is_neither_told_nor_ended() -> None:
    reports = StallReports(AFTER)
    wait = spell(1, 0.0, "allreduce w")
    assert reports.look(wait, 31.0)
    assert reports.look(None, 32.0) == []
    assert reports.look(spell(5, 1000.0), 1001.0) == []


@given(
    st.lists(st.tuples(st.floats(0.1, 500), st.booleans()), min_size=1, max_size=20),
    st.floats(0.5, 20),
)
def test_nothing_short_is_told_and_each_end_follows_its_beginning(
    spells: list[tuple[float, bool]], pause: float
) -> None:
    reports, now, due = StallReports(AFTER), 0.0, 0.0
    told: list[tuple[int, float, StallReport]] = []
    for number, (seconds, waits) in enumerate(spells):
        present = spell(number, now, "allreduce w" if waits else "")
        while due < now + seconds:
            told += [(number, seconds, report) for report in reports.look(present, max(due, now))]
            due += pause
        now += seconds
    for number, seconds, report in told:
        if not report.is_over:
            assert AFTER <= report.seconds <= seconds
            assert bool(report.operation) == spells[number][1]
    for (_, _, before), (number, _, report) in pairwise(told):
        if report.is_over:
            assert not before.is_over
            assert before.operation == report.operation
            assert report.seconds >= before.seconds
        elif before.seconds > report.seconds:
            assert before.is_over, (number, before, report)
