"""A log that is read in many requests is the log that was written."""

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.logs.log_line import stamped_second
from hvd_elastic.client.logs.log_position import Arrival, LogPosition
from tests.hvd_elastic.client.logs.launchers import START, stamp

LOGS = st.lists(
    st.tuples(st.sampled_from((0.0, 0.0, 0.1, 0.4, 0.7, 3.0)), st.sampled_from("abc")), min_size=1, max_size=30
)
"""Seconds since the line before, and the line: many equal ones, also within one moment."""


def file_of(log: list[tuple[float, str]]) -> list[bytes]:
    now, lines = 0.0, []
    for pause, text in log:
        now += pause
        lines.append(f"{stamp(now)} {text}".encode())
    return lines


def take(position: LogPosition, line: bytes) -> Arrival:
    second = stamped_second(line)
    assert second is not None
    return position.take(line, second)


def served(file: list[bytes], since: str | None) -> list[bytes]:
    """What the kubelet sends: it compares with whole seconds."""
    if since is None:
        return file
    first = int(datetime.fromisoformat(since).timestamp())
    return [line for line in file if (stamped_second(line) or 0) >= first]


@given(log=LOGS, cuts=st.lists(st.integers(min_value=0, max_value=30)))
def test_no_line_is_lost_or_repeated_however_often_the_stream_is_cut(
    log: list[tuple[float, str]], cuts: list[int]
) -> None:
    file, position, read = file_of(log), LogPosition(), []
    for cut in [*cuts, len(file)]:
        position.resume()
        brought = served(file, position.since)
        until = brought if cut == len(file) else brought[:cut]
        for line in until:
            arrival = take(position, line)
            assert arrival is not Arrival.AFTER_GAP
            if arrival is Arrival.NEW:
                read.append(line)
    assert read == file


@given(log=LOGS, late=st.integers(min_value=0, max_value=29))
def test_lines_of_two_streams_that_are_out_of_order_by_a_second(log: list[tuple[float, str]], late: int) -> None:
    file = file_of(log)
    late %= len(file)
    file.insert(late + 1, f"{stamp(-1.0)} early".encode())
    second = stamped_second(file[late]) or 0
    file[late + 1] = f"{stamp(second - START.timestamp() - 0.5)} early".encode()
    position, read = LogPosition(), []
    for until in (late + 1, len(file)):
        position.resume()
        read += [line for line in served(file[:until], position.since) if take(position, line) is Arrival.NEW]
    assert read == file


def test_a_rotated_file_shows_as_a_gap_once() -> None:
    position = LogPosition()
    before, after = file_of([(0, "a"), (1, "b")]), file_of([(9, "c"), (0, "d")])
    assert [take(position, line) for line in before] == [Arrival.NEW, Arrival.NEW]
    position.resume()
    assert [take(position, line) for line in after] == [Arrival.AFTER_GAP, Arrival.NEW]


def test_a_file_that_was_rotated_between_known_lines_has_no_gap_if_the_last_is_there() -> None:
    position = LogPosition()
    lines = file_of([(0, "a"), (0, "b"), (0, "c")])
    for line in lines[:2]:
        take(position, line)
    position.resume()
    assert [take(position, line) for line in lines[1:]] == [Arrival.KNOWN, Arrival.NEW]


def test_a_torn_line_comes_once_more_and_whole() -> None:
    position = LogPosition()
    whole = file_of([(0, "abc")])[0]
    take(position, whole[:-1])
    position.resume()
    assert take(position, whole) is Arrival.NEW


def test_a_request_that_breaks_before_it_has_joined_is_known() -> None:
    position, joined = LogPosition(), []
    lines = file_of([(0, "a"), (0, "b")])
    for _ in range(2):
        position.resume()
        joined.append(position.has_joined)
        for line in lines:
            take(position, line)
            joined.append(position.has_joined)
    assert joined == [True, True, True, False, False, True]


@given(log=LOGS, first=st.integers(min_value=0, max_value=29), cut=st.integers(min_value=0, max_value=30))
def test_what_stands_before_the_first_line_that_was_asked_for_stays_out(
    log: list[tuple[float, str]], first: int, cut: int
) -> None:
    file = file_of([(pause, f"{text}{index}") for index, (pause, text) in enumerate(log)])
    first %= len(file)
    position, read = LogPosition(begins_late=True), []
    for whole in (file[first:][: cut + 1], file):
        position.resume()
        read += [line for line in served(whole, position.since) if take(position, line) is Arrival.NEW]
    assert read == file[first:]
