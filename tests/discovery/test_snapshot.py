import math
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.snapshot import (
    Host,
    InvalidHostError,
    MissingSnapshotError,
    Snapshot,
    StaleSnapshotError,
    TornSnapshotError,
    parse,
    read_snapshot,
    render,
    write_snapshot,
)
from hvd_elastic.mpijob.contract import SNAPSHOT_FILE, SnapshotState

FIELD = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
HOSTS = st.builds(Host, address=FIELD | st.ip_addresses(v=6).map(str), slots=st.integers(1, 99), alias=FIELD, pod=FIELD)
GOOD = Host(address="a", slots=1, alias="u-0", pod="p")
SNAPSHOTS = st.builds(
    Snapshot,
    hosts=st.lists(HOSTS, max_size=5).map(tuple),
    generation=st.integers(0, 2**40),
    uptime_seconds=st.integers(0, 2**40),
    unix_seconds=st.integers(0, 2**40),
    state=st.sampled_from(SnapshotState),
)


@given(SNAPSHOTS)
def test_what_is_written_is_what_is_read(snapshot: Snapshot) -> None:
    assert parse(render(snapshot).decode()) == snapshot


@given(SNAPSHOTS, st.data())
def test_no_part_of_a_snapshot_is_a_snapshot(snapshot: Snapshot, data: st.DataObject) -> None:
    text = render(snapshot).decode()
    with pytest.raises(TornSnapshotError):
        parse(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.text(max_size=60))
def test_noise_is_not_a_snapshot(text: str) -> None:
    with pytest.raises(TornSnapshotError):
        parse(text)


@pytest.mark.parametrize(
    "field",
    [{"address": "a b"}, {"pod": "x\nend"}, {"alias": "$(id)"}, {"slots": 0}, {"pod": ""}],
)
def test_a_host_that_would_break_the_grammar_cannot_be_written(field: dict[str, object], tmp_path: Path) -> None:
    host = Host(**{"address": "a", "slots": 1, "alias": "u-0", "pod": "p", **field})  # type: ignore[arg-type]
    with pytest.raises(InvalidHostError):
        write_snapshot(tmp_path, Snapshot(hosts=(GOOD, host), generation=1, uptime_seconds=0, unix_seconds=0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", [{"address": "b"}, {"slots": 2}, {"alias": "u-1"}, {"pod": "q"}])
def test_two_hosts_are_the_same_only_if_all_four_fields_are(field: dict[str, object]) -> None:
    assert len({GOOD, replace(GOOD)}) == 1
    assert len({GOOD, replace(GOOD, **field)}) == 2  # type: ignore[arg-type]


def test_an_alias_is_the_uid_and_the_generation() -> None:
    host = Host(address="a", slots=1, alias="0f-0f-12", pod="p")
    assert (host.uid, host.generation) == ("0f-0f", 12)


def test_age_decides_on_a_clock_that_does_not_jump(tmp_path: Path) -> None:
    write_snapshot(tmp_path, Snapshot(hosts=(), generation=1, uptime_seconds=100, unix_seconds=0))
    assert read_snapshot(tmp_path, uptime=lambda: 130).generation == 1
    for uptime in (131, 99):
        with pytest.raises(StaleSnapshotError):
            read_snapshot(tmp_path, uptime=lambda uptime=uptime: uptime)  # type: ignore[misc]
        assert read_snapshot(tmp_path, uptime=lambda: 0, max_age_seconds=math.inf).generation == 1


def test_missing_and_torn_are_different_errors(tmp_path: Path) -> None:
    with pytest.raises(MissingSnapshotError):
        read_snapshot(tmp_path)
    (tmp_path / SNAPSHOT_FILE).write_bytes(b"host \xff\n")
    with pytest.raises(TornSnapshotError):
        read_snapshot(tmp_path)


def test_a_reader_never_sees_half_of_a_write(tmp_path: Path) -> None:
    hosts = tuple(Host(address=f"10.0.0.{i}", slots=1, alias=f"u{i}-0", pod=f"p{i}") for i in range(200))
    done = threading.Event()

    def write() -> None:
        for generation in range(300):
            write_snapshot(
                tmp_path,
                Snapshot(hosts=hosts[: generation % 200], generation=generation, uptime_seconds=0, unix_seconds=0),
            )
        done.set()

    write_snapshot(tmp_path, Snapshot(hosts=(), generation=0, uptime_seconds=0, unix_seconds=0))
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        seen = read_snapshot(tmp_path, max_age_seconds=math.inf)
        assert len(seen.hosts) == seen.generation % 200
    thread.join()
