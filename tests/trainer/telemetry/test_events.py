import json
import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_EVENTS
from hvd_elastic.trainer.telemetry import events


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for file in folder.iterdir() for line in file.read_text().splitlines()]


def emit(step: int) -> None:
    events.emit(events.Kind.STEP, rank=0, size=1, step=step)


def test_a_folder_that_cannot_be_used_costs_its_events_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "events"
    folder.write_text("a file")
    monkeypatch.setenv(ENV_EVENTS, str(folder))
    emit(1)
    emit(2)
    folder.unlink()
    emit(3)
    emit(4)
    assert steps(folder) == [3, 4]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "2 events were lost" in caplog.text


def unreadable() -> object:
    circle: list[object] = []
    circle.append(circle)
    return circle


def fail(_: events.Event) -> None:
    raise RuntimeError("no room")


def test_what_cannot_be_told_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that cannot be written costs the file its line, and a listener's error the others nothing."""
    monkeypatch.setenv(ENV_EVENTS, str(tmp_path))
    heard: list[object] = []
    events.subscribe(fail)
    events.subscribe(lambda event: heard.append(event["step"]))
    events.emit(events.Kind.STEP, rank=0, size=1, step=1, loss=unreadable())
    events.emit(events.Kind.STEP, rank=0, size=1, step=2, loss=torch.tensor([1.0, 2.0]))
    assert (steps(tmp_path), heard) == ([2], [1, 2])
    assert "an event is lost: RuntimeError: no room" in caplog.text


FULL_VOLUME = """
import resource, signal
from hvd_elastic.trainer.telemetry import events
for step in range(100):
    events.emit(events.Kind.STEP, rank=0, size=1, step=step)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
events.emit(events.Kind.STEP, rank=0, size=1, step=1000)
print("trained on")
"""


@pytest.mark.core
@pytest.mark.process
def test_a_full_volume_cuts_no_line_and_ends_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_VOLUME],
        env={**os.environ, ENV_EVENTS: str(tmp_path / "events")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "trained on\n", done.stderr
    written = steps(tmp_path / "events")
    assert written == [*range(len(written) - 1), 1000]
    assert 1 < len(written) < 101
