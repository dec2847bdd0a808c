import os
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import (
    ENV_GRACE_SECONDS,
    ENV_RUN_DIR,
    LEAVE_FILE,
    NO_SUCCESSOR_FILE,
    NO_SUCCESSOR_SECONDS,
)
from hvd_elastic.trainer.elastic import departure


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        pytest.param(None, 24.0, id="0.8 of the grace before the pod is ending"),
        pytest.param(0.0, 24.0, id="at once after SIGTERM"),
        pytest.param(20.0, 9.0, id="what the pod still waits: the grace less a second of reserve"),
        pytest.param(60.0, 0.0, id="over"),
        pytest.param(3610.0, 24.0, id="the clock was set on meanwhile"),
        pytest.param(-3590.0, 24.0, id="the clock was set back meanwhile"),
    ],
)
def test_a_checkpoint_may_take_what_is_left_of_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: float | None, left: float
) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    monkeypatch.setenv(ENV_GRACE_SECONDS, "30")
    if gone is not None:
        (tmp_path / LEAVE_FILE).touch()
        os.utime(tmp_path / LEAVE_FILE, (1000.0, 1000.0))
    assert departure.announced() is (gone is not None)
    assert departure.checkpoint_seconds(wall=lambda: 1000.0 + (gone or 0.0)) == left


@pytest.mark.parametrize(
    ("leaves", "said", "holds"),
    [
        pytest.param(True, 0.0, True, id="just now"),
        pytest.param(True, -NO_SUCCESSOR_SECONDS + 0.01, True, id="a moment ago"),
        pytest.param(True, -NO_SUCCESSOR_SECONDS, False, id="and not since: there may be another worker now"),
        pytest.param(True, 1.0, False, id="before the clock was set back: nobody knows when"),
        pytest.param(True, None, False, id="never"),
        pytest.param(False, 0.0, False, id="to a worker that is to stay"),
    ],
)
def test_the_word_that_nobody_follows_holds_for_a_moment_in_a_pod_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool, said: float | None, holds: bool
) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    if leaves:
        (tmp_path / LEAVE_FILE).touch()
    if said is not None:
        (tmp_path / NO_SUCCESSOR_FILE).touch()
        os.utime(tmp_path / NO_SUCCESSOR_FILE, (1000.0 + said, 1000.0 + said))
    assert departure.has_no_successor(wall=lambda: 1000.0) is holds
