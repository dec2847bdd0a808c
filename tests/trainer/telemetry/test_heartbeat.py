import json
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, ENV_EVENTS, ENV_RUN_DIR, HEARTBEAT_FILE
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.heartbeat import CheckpointRequest, HeartbeatWriter


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    monkeypatch.delenv("HOROVOD_LOCAL_RANK", raising=False)
    return tmp_path


def test_a_heartbeat_is_written_at_most_once_a_second(folder: Path) -> None:
    now = [100.0]
    heartbeat = HeartbeatWriter(clock=lambda: now[0], wall=lambda: 1_700_000_000.9)
    assert heartbeat.beat(step=1, rank=2, size=3)
    now[0] += 0.99
    assert not heartbeat.beat(step=2, rank=2, size=3)
    assert (folder / HEARTBEAT_FILE).read_text() == "1 2 3 1700000000\n"
    now[0] += 0.02
    assert heartbeat.beat(step=3, rank=0, size=2)
    assert (folder / HEARTBEAT_FILE).read_text() == "3 0 2 1700000000\n"
    assert [path.name for path in folder.iterdir()] == [HEARTBEAT_FILE]


def test_only_the_first_process_of_a_worker_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    assert not HeartbeatWriter().beat(step=1, rank=1, size=2)
    assert not list(folder.iterdir())


def test_without_the_folder_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, "/nowhere/at/all")
    monkeypatch.delenv("HOROVOD_LOCAL_RANK", raising=False)
    assert not HeartbeatWriter().beat(step=1, rank=0, size=1)
    assert not CheckpointRequest().pending()
    assert CheckpointRequest().take() == ""


def test_a_request_is_taken_once(folder: Path) -> None:
    request = CheckpointRequest()
    (folder / CHECKPOINT_REQUEST_FILE).write_text("below min\n")
    assert request.pending()
    assert request.take() == "below min"
    assert not request.pending()
    (folder / CHECKPOINT_REQUEST_FILE).touch()
    assert request.take() == "request"


def test_events_are_lines_of_the_contract_and_reach_listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv(ENV_EVENTS, str(tmp_path / "events"))
    heard: list[Any] = []
    events.subscribe(heard.append)
    events.subscribe(heard.append)
    try:
        events.emit(events.Kind.STEP, rank=1, size=2, step=7, loss=torch.tensor(0.5))
    finally:
        events.unsubscribe(heard.append)
    events.emit(events.Kind.LEFT, rank=1, size=2, step=7)
    (path,) = (tmp_path / "events").iterdir()
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert list(first)[:5] == ["time", "event", "rank", "size", "step"]
    assert {key: first[key] for key in list(first)[1:]} == {
        "event": "step",
        "rank": 1,
        "size": 2,
        "step": 7,
        "loss": 0.5,
    }
    assert second["event"] == "left"
    assert [event["event"] for event in heard] == ["step"]


def test_without_listeners_events_are_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_EVENTS, raising=False)
    assert not events.enabled()
    events.emit(events.Kind.STEP, rank=0, size=1, step=1)
