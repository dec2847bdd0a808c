"""The ledger's lines: what is written is read back, and a stranger's or a torn line costs only itself."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    RanksStalled,
    StallEnded,
    Totals,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
    from_lines,
    to_line,
)
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus

ENTRIES = (
    LauncherStarted,
    LauncherEnded,
    WorkerBound,
    WorkerLeaving,
    WorkerGone,
    WorldChanged,
    WorkerProcessLost,
    RanksStalled,
    StallEnded,
    WantedChanged,
    JobEnded,
    Totals,
)
TIMES = st.floats(0, 4e9, allow_nan=False)


def any_entry() -> st.SearchStrategy[Any]:
    return st.one_of(*(st.builds(made) for made in ENTRIES))


@given(st.lists(any_entry()))
def test_what_is_written_is_read_back(entries: list[Entry]) -> None:
    lines = "".join(map(to_line, entries))
    assert lines.count("\n") == len(entries)
    read = list(from_lines(lines.splitlines()))
    assert "".join(map(to_line, read)) == lines
    assert list(map(type, read)) == list(map(type, entries))


def test_lines_that_cannot_be_read_are_left_out() -> None:
    good = to_line(WorkerLeaving(unix=1.0, pod="a", uid="u", why=Departure.PREEMPTED))
    bad = ['{"kind":"later-invention","unix":1}', "[]", "7", "", '{"kind":"worker-gone"}', good[:20]]
    later = good.replace('"unix"', '"later_key":1,"unix"')
    assert len(list(from_lines([*bad, good, later]))) == 2


@given(st.builds(LiveStatus, activity=st.sampled_from(Activity), unix=TIMES, since=TIMES, step=st.integers(-1, 10**9)))
def test_a_status_is_read_back(status: LiveStatus) -> None:
    text = status.to_json()
    assert "\n" not in text
    read = LiveStatus.from_json(text)
    assert read is not None
    assert read.to_json() == text


def test_a_strangers_status_is_none() -> None:
    assert LiveStatus.from_json("{") is None
    assert LiveStatus.from_json('{"activity": "sleeping", "unix": 1, "since": 1}') is None
