"""Checkpoints that others ask for: each is made, and training waits for one in ten seconds at most."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE
from hvd_elastic.worker.drain import REQUEST_GAP_SECONDS, CheckpointRequests
from hvd_elastic.worker.event_loop import EventLoop


class Asked:
    def __init__(self, run_dir: Path) -> None:
        self.now = 0.0
        self.loop = EventLoop(clock=lambda: self.now)
        self.requests = CheckpointRequests(self.loop, run_dir, clock=lambda: self.now)
        self._file = run_dir / CHECKPOINT_REQUEST_FILE

    def taken(self) -> str:
        """What the training process finds at its next commit."""
        # A timer that is due: the loop waits for no event.
        self.loop.after(0.0, lambda: None)
        self.loop.turn()
        if not self._file.exists():
            return ""
        reason = self._file.read_text().strip()
        self._file.unlink()
        return reason


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path)
    yield made
    made.loop.close()


def test_the_first_request_waits_for_nothing_and_the_next_for_its_time(asked: Asked) -> None:
    asked.requests.take("first")
    assert asked.taken() == "first"
    for reason in ("second", "third"):
        asked.requests.take(reason)
        assert asked.taken() == ""
    asked.now = REQUEST_GAP_SECONDS
    assert asked.taken() == "second"
    asked.now = 3 * REQUEST_GAP_SECONDS
    assert asked.taken() == ""
    asked.requests.take("fourth")
    assert asked.taken() == "fourth"


def test_a_flood_costs_one_checkpoint_in_ten_seconds(asked: Asked) -> None:
    found = 0
    for tenth in range(600):
        asked.now = tenth / 10
        asked.requests.take("a flood")
        found += bool(asked.taken())
    assert found == 6


def test_a_request_goes_with_the_process_that_it_was_for(asked: Asked) -> None:
    asked.requests.take("first")
    asked.taken()
    asked.requests.take("second")
    asked.requests.forget()
    asked.now = 2 * REQUEST_GAP_SECONDS
    assert asked.taken() == ""
