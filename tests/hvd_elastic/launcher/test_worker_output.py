"""What becomes of the workers' lines, whatever stdout, the disk and the workers do."""

import contextlib
import io
import logging
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.launcher.remote.output_lines import OutputLines
from hvd_elastic.launcher.remote.output_sinks import LossySink, RankFile, StreamSink
from hvd_elastic.launcher.remote.worker_output import (
    BAR_SECONDS,
    TAIL_LINE_LENGTH,
    TAIL_LINES,
    OutputReader,
    OutputStream,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stream(
    sink: TextIO | None, *, name: str = "stdout", copy: RankFile | None = None, clock: Callable[[], float] | None = None
) -> OutputStream:
    sinks = LossySink(name, StreamSink(sink)), LossySink("copy", copy) if copy else None
    return OutputStream(name, sinks, lambda: "3", clock=clock or Clock())


@pytest.fixture
def full() -> Iterator[TextIO]:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as file:
        yield file


def test_long_lines_do_not_fill_the_memory_nor_the_reason() -> None:
    output = stream(written := io.StringIO(), name="stderr")
    line = "ValueError: " + "\U0001f600" * 100_000 + " is no number"
    for _ in range(2 * TAIL_LINES):
        output.feed(f"{line}\n".encode())
    assert written.getvalue().count(line) == 2 * TAIL_LINES
    assert len(output.tail) == TAIL_LINES
    assert max(map(len, output.tail)) <= TAIL_LINE_LENGTH
    assert {(told[:12], told[-13:]) for told in output.tail} == {("ValueError: ", " is no number")}


# --- Outputs that cannot be written ----------------------------------------------------------------------------------


def read_whole(output: OutputStream, data: bytes) -> None:
    """Have the reader's thread read the data from a pipe that holds less."""
    reading, writing = os.pipe()
    reader = OutputReader()
    reader.start()
    reader.add(os.fdopen(reading, "rb"), output)
    writer = threading.Thread(target=_write_and_close, args=(writing, data), daemon=True)
    writer.start()
    assert output.drained.wait(20), "a worker that prints is stopped"
    reader.drain(20)


def _write_and_close(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def test_a_full_disk_stops_no_worker(full: TextIO, caplog: pytest.LogCaptureFixture) -> None:
    read_whole(stream(full), b"line\n" * 100_000)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text


def test_a_reader_that_has_gone_stops_no_worker() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as sink:
        read_whole(stream(sink), b"line\n" * 100_000)


def test_a_stream_that_is_closed_stops_no_worker() -> None:
    sink = io.StringIO()
    sink.close()
    read_whole(stream(sink), b"line\n")
    read_whole(stream(None), b"line\n")


def test_an_encoding_that_lacks_a_character_changes_nothing(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as sink:
        read_whole(stream(sink), "é\n".encode() + b"\xff\n")
    assert (tmp_path / "out").read_bytes() == "[3]<stdout>:é\n".encode() + b"[3]<stdout>:\xff\n"


def test_a_stream_that_does_not_block_loses_nothing() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    got: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as file:
            got.append(file.read())

    reader = threading.Thread(target=read)
    with os.fdopen(writing, "w") as sink:
        threading.Timer(0.1, reader.start).start()  # when the pipe is full
        read_whole(stream(sink), b"line\n" * 100_000)
    reader.join(20)
    assert got == [b"[3]<stdout>:line\n" * 100_000]


def test_an_unusable_output_folder_costs_its_files_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "outputs"
    folder.write_text("a file")
    sink = io.StringIO()
    output = stream(sink, copy=RankFile(str(folder), 3, 8, "stdout"))
    output.feed(b"lost\nlost\n")
    folder.unlink()
    output.feed(b"kept\n")
    output.end()
    assert sink.getvalue().splitlines() == ["[3]<stdout>:lost"] * 2 + ["[3]<stdout>:kept"]
    assert (folder / "rank.3" / "stdout").read_bytes() == b"kept\n"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "2 lines were lost" in caplog.text


def test_a_line_that_was_written_in_part_does_not_run_into_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rank.0" / "stdout"
    file = RankFile(str(tmp_path), 0, 1, "stdout")
    write, room = os.write, [4]

    def short(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        room[0] -= (written := write(descriptor, data[: room[0]]))
        return written

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="space"):
        file.write(b"first\n")
    room[0] = 1000
    file.write(b"second\n")
    file.close()
    assert path.read_bytes() == b"firs\nsecond\n"


# --- Lines -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=30)))
def test_without_carriage_returns_every_byte_comes_out_once_and_in_order(parts: list[bytes]) -> None:
    data = [part.replace(b"\r", b"") for part in parts]
    lines = OutputLines()
    whole = [line for part in data for line in lines.feed(part)]
    ends = b"".join(data).split(b"\n")
    assert whole + lines.end() == (ends if ends[-1] else ends[:-1])


def test_a_line_without_an_end_is_cut_somewhere() -> None:
    lines = OutputLines()
    cut = [line for _ in range(40) for line in lines.feed(b"x" * 65536)]
    assert cut
    assert b"".join(cut + lines.end()) == b"x" * 65536 * 40


def bars(*texts: str) -> list[bytes]:
    return [f"\r{text}".encode() for text in texts]


def test_a_progress_bar_is_shown_while_it_runs_and_once_in_a_second() -> None:
    sink, clock = io.StringIO(), Clock()
    output = stream(sink, name="stderr", clock=clock)
    for percent in bars("  0%", " 20%", " 40%"):
        output.feed(percent)
    assert sink.getvalue() == "[3]<stderr>:  0%\n"
    assert output.show_bar(), "it waits for its time"
    clock.now += BAR_SECONDS
    assert not output.show_bar()
    assert sink.getvalue().splitlines()[1:] == ["[3]<stderr>: 40%"]
    output.feed(b"\r100%\n")
    output.feed(b"next\n")
    assert sink.getvalue().splitlines()[2:] == ["[3]<stderr>:100%", "[3]<stderr>:next"]


def test_a_bar_that_is_shown_is_not_shown_again() -> None:
    sink, clock = io.StringIO(), Clock()
    output = stream(sink, clock=clock)
    output.feed(b"\r100%")
    clock.now += BAR_SECONDS
    assert not output.show_bar()
    output.feed(b"\n")
    output.feed(b"text\r")
    output.feed(b"\n")
    output.end()
    assert sink.getvalue().splitlines() == ["[3]<stdout>:100%", "[3]<stdout>:text"]


def test_a_message_over_an_erased_bar() -> None:
    lines = OutputLines()
    assert lines.feed(b"\r 50%\r      \rsaved\n\r 60%\r\x1b[K") == [b"saved"]
    assert lines.take_bar() == b" 60%"


def test_windows_lines_and_empty_lines_are_lines() -> None:
    assert OutputLines().feed(b"a\r\n\r\n\n  \nb\n") == [b"a", b"", b"", b"  ", b"b"]


def test_a_bar_that_waits_is_shown_by_the_reader_though_nothing_more_comes(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    reader, clock = OutputReader(), Clock()
    path = tmp_path / "out"
    with path.open("w") as sink, os.fdopen(writing, "wb", buffering=0) as pipe:
        reader.start()
        reader.add(os.fdopen(reading, "rb"), stream(sink, clock=clock))
        pipe.write(b"\r 10%")
        _until(lambda: path.read_text() == "[3]<stdout>: 10%\n")
        pipe.write(b"\r 20%")
        clock.now += BAR_SECONDS
        _until(lambda: path.read_text().endswith("[3]<stdout>: 20%\n"))
    reader.drain(20)


def _until(true: Callable[[], bool]) -> None:
    waits = threading.Event()
    for _ in range(2000):
        if true():
            return
        waits.wait(0.01)
    raise AssertionError


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_scripts_own_lines_are_never_taken_for_noise(name: str) -> None:
    said = [
        "Connection to db1 closed.",
        "user: this line says Connection to db2 closed by remote host.",
        "Shared connection to the past",
        "Warning: Permanently added confusion",
        "RuntimeError: a[0] has been removed from elastic job, they say",
    ]
    sink = io.StringIO()
    stream(sink, name=name).feed("".join(f"{line}\n" for line in said).encode())
    assert sink.getvalue().splitlines() == [f"[3]<{name}>:{line}" for line in said]


def test_horovods_noise_is_left_out() -> None:
    sink = io.StringIO()
    noise = (
        "[2026-01-01 12:00:00.123456: E /tmp/horovod/common/operations.cc:725] [1]: Horovod background loop uncaught "
        "exception: host[0] has been removed from elastic job\n"
        "  what():  host[0] has been removed from elastic job\n"
    )
    stream(sink, name="stderr").feed(noise.encode())
    assert not sink.getvalue()


def test_time_stamps_are_in_front_of_the_rank() -> None:
    sink = io.StringIO()
    moment = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - horovodrun prints local time
    OutputStream("stdout", (LossySink("s", StreamSink(sink)), None), lambda: "0", now=lambda: moment).feed(b"x\n")
    assert sink.getvalue() == "Fri Jan 02 03:04:05 2026[0]<stdout>:x\n"
