"""The ledger's lines: what is written is read back, and a stranger's or a torn line costs only itself."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    RankSlow,
    RankSlowEnded,
    RanksStalled,
    RecordLost,
    Slowness,
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
    RankSlow,
    RankSlowEnded,
    WantedChanged,
    JobEnded,
    RecordLost,
    Totals,
)
TIMES = st.floats(0, 4e9, allow_nan=False)
COUNTS = st.integers(-1, 10**17)
WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    float: TIMES,
    float | None: st.none() | TIMES,
    int: COUNTS,
    int | None: st.none() | COUNTS,
    str: WORDS,
    Slowness: st.sampled_from(Slowness),
    tuple[str, ...]: st.lists(WORDS.filter(bool)).map(tuple),
    dict[str, float]: st.dictionaries(WORDS.filter(bool), TIMES),
}


def any_entry() -> st.SearchStrategy[Any]:
    def build(made: Any) -> st.SearchStrategy[Any]:
        return st.builds(made, **{each.name: VALUES[each.type] for each in fields(made) if each.type in VALUES})

    return st.one_of(*map(build, ENTRIES))


@given(st.lists(any_entry()))
def test_what_is_written_is_read_back(entries: list[Entry]) -> None:
    lines = "".join(map(to_line, entries))
    assert lines.count("\n") == len(entries)
    read = list(from_lines(lines.splitlines()))
    assert "".join(map(to_line, read)) == lines
    assert list(map(type, read)) == list(map(type, entries))


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"world-changed","unix":"soon","workers":["a"]}',
        '{"kind":"world-changed","unix":1e300,"workers":["a"]}',
        '{"kind":"world-changed","unix":NaN,"workers":["a"]}',
        '{"kind":"world-changed","unix":1,"workers":"abc"}',
        '{"kind":"world-changed","unix":1,"workers":["a"],"step":1.5}',
        '{"kind":"worker-bound","unix":1,"pod":"a","uid":"u","node":"n","gpus":"many"}',
        '{"kind":"totals","unix":1,"began":1,"gpu_seconds":{"m|spot":"x"}}',
        '{"kind":"totals","unix":1,"began":1,"entries":true}',
        '{"kind":["totals"]}',
        "[" * 100_000,
    ],
)
def test_a_value_of_a_wrong_type_costs_its_line(line: str) -> None:
    assert list(from_lines([line])) == []


def test_texts_come_without_what_a_terminal_obeys() -> None:
    (entry,) = from_lines(['{"kind":"launcher-started","unix":1,"pod":"a\\u001b[2Jb","uid":"u"}'])
    assert entry == LauncherStarted(unix=1.0, pod="a?[2Jb", uid="u")


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
    assert LiveStatus.from_json('{"activity": "training", "unix": "now", "since": 1}') is None
