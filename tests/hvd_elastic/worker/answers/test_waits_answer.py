"""What a worker tells of ranks that get on with nothing: what is fresh, and nothing else of the pod's files."""

import json
import os
import time
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import WAIT_FILE, WAITS_MAX_BYTES
from hvd_elastic.worker.answers.waits_answer import waits_line

WORD = '{"rank":1,"size":2,"seconds":31.0,"after":30.0}\n'


def test_the_words_of_all_slots_are_one_line(tmp_path: Path) -> None:
    assert waits_line(tmp_path, 2) == b"[]\n"
    for slot in range(3):
        (tmp_path / f"{WAIT_FILE}.{slot}").write_text(WORD)
    line = waits_line(tmp_path, 2)
    assert line.count(b"\n") == 1
    assert json.loads(line) == [json.loads(WORD)] * 2


def test_the_word_of_a_process_that_was_killed_is_soon_none(tmp_path: Path) -> None:
    path = tmp_path / f"{WAIT_FILE}.0"
    path.write_text(WORD)
    assert json.loads(waits_line(tmp_path, 1))
    old = time.time() - 11.0
    os.utime(path, (old, old))
    assert waits_line(tmp_path, 1) == b"[]\n"


@pytest.mark.parametrize(
    "written", [b"", b"root:x:0:0\n", b"[1]\n", b"\xff{}\n", b"[" * 900, b'{"a":"' + b"x" * 2000 + b'"}']
)
def test_anything_else_is_left_out(tmp_path: Path, written: bytes) -> None:
    (tmp_path / f"{WAIT_FILE}.0").write_bytes(written)
    assert waits_line(tmp_path, 1) == b"[]\n"


def test_the_line_is_never_too_long(tmp_path: Path) -> None:
    for slot in range(64):
        (tmp_path / f"{WAIT_FILE}.{slot}").write_text(json.dumps({"rank": slot, "place": "x" * 900}))
    line = waits_line(tmp_path, 64)
    assert len(line) <= WAITS_MAX_BYTES
    assert [each["rank"] for each in json.loads(line)] == list(range(17))
