"""What READY_PORT says of the training process, whatever that has written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.sidecar.workers.prober import parse_ready_line
from hvd_elastic.mpijob.contract import HEARTBEAT_FILE, WorkerState
from hvd_elastic.worker.answers import NO_HEARTBEAT, Heartbeat, own_line, read_heartbeat


@pytest.mark.parametrize(
    ("text", "beat"),
    [
        ("7 0 2 995\n", Heartbeat(step=7, age_seconds=5)),
        ("7 0 2 9999\n", Heartbeat(step=7, age_seconds=0)),
        ("-3 0 2 995\n", NO_HEARTBEAT),
        ("7 0 2 -1e300\n", NO_HEARTBEAT),
        ("7 0 2 nan\n", NO_HEARTBEAT),
        ("7" * 99 + " 0 2 995\n", NO_HEARTBEAT),
        ("7 0\n", NO_HEARTBEAT),
        ("", NO_HEARTBEAT),
    ],
)
def test_a_heartbeat_that_is_none_is_not_reported(tmp_path: Path, text: str, beat: Heartbeat) -> None:
    (tmp_path / HEARTBEAT_FILE).write_text(text)
    assert read_heartbeat(tmp_path, clock=lambda: 1000.0) == beat


@given(st.binary(max_size=64))
def test_discovery_reads_every_answer(tmp_path_factory: pytest.TempPathFactory, written: bytes) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / HEARTBEAT_FILE).write_bytes(written)
    beat = read_heartbeat(folder)
    uid = "0b8f5a9c-1f60-4d0c-9e5e-1f3f1c1f6a60"
    assert parse_ready_line(own_line(3, WorkerState.TRAINING, beat, uid), uid) == parse_ready_line(
        own_line(3, WorkerState.TRAINING, beat)
    )
    view = parse_ready_line(own_line(3, WorkerState.TRAINING, beat))
    assert (view.generation, view.step, view.age_seconds) == (3, beat.step, beat.age_seconds)
