import pytest

from hvd_elastic.client.logs.log_line import LogSelection, parse_line, stamped_second

STAMP = b"2026-11-22T21:05:53.246021670Z"


@pytest.mark.parametrize(
    ("text", "rank", "stream", "said"),
    [
        ("[0]<stdout>:loss 0.3", 0, "stdout", "loss 0.3"),
        ("[12]<stderr>:  warning", 12, "stderr", "  warning"),
        ("[3]<stdout>:", 3, "stdout", ""),
        ("[3]:loss", 3, "", "loss"),
        ("Sun Nov 22 21:05:53 2026[1]<stdout>:loss", 1, "stdout", "loss"),
        ("Sun Nov  2 21:05:53 2026[1]<stdout>:loss", 1, "stdout", "loss"),
        ("21:05:53 hvd-elastic: world of 3: a joined", None, "", "21:05:53 hvd-elastic: world of 3: a joined"),
        ("[W socket.cpp:601] of torch in the launcher", None, "", "[W socket.cpp:601] of torch in the launcher"),
        ("", None, "", ""),
    ],
)
def test_the_rank_in_front_is_taken_off(text: str, rank: int | None, stream: str, said: str) -> None:
    line = parse_line(STAMP + b" " + text.encode(), "job-launcher-a")
    assert (line.rank, line.stream, line.text, line.launcher) == (rank, stream, said, "job-launcher-a")
    assert line.time == STAMP.decode()
    assert str(line) == (said if rank is None else f"[{rank}] {said}")


@pytest.mark.parametrize(
    ("line", "second"),
    [
        (b"1970-01-01T00:00:10.999999999Z text", 10),
        (b"1970-01-01T02:00:10.000000000+02:00 text", 10),
        (b"1970-01-01T00:00:10Z ", 10),
        (b"failed to create fsnotify watcher: too many open files", None),
        (b"1970-01-01T00:00:10.99", None),
        (b"", None),
    ],
)
def test_the_second_of_a_stamp_in_any_zone(line: bytes, second: int | None) -> None:
    assert stamped_second(line) == second


def test_text_that_is_not_utf_8_is_a_line_too() -> None:
    assert parse_line(STAMP + b" [0]<stdout>:\xff", "a").text == "�"


def test_a_line_without_a_time_is_no_line() -> None:
    with pytest.raises(ValueError, match="without a time"):
        parse_line(b"unable to retrieve container logs", "a")


@pytest.mark.parametrize(
    ("selection", "admitted"),
    [
        (LogSelection(), {0, 1, None}),
        (LogSelection(ranks=frozenset({1, 7})), {1}),
        (LogSelection(launcher=True), {None}),
        (LogSelection(ranks=frozenset({0}), launcher=True), {0, None}),
    ],
)
def test_what_is_asked_for(selection: LogSelection, admitted: set[int | None]) -> None:
    lines = [parse_line(STAMP + b" " + text, "a") for text in (b"[0]<stdout>:a", b"[1]<stderr>:b", b"own")]
    assert {line.rank for line in lines if selection.admits(line)} == admitted
