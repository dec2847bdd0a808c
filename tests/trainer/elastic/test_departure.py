import os
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_GRACE_SECONDS, ENV_RUN_DIR, LEAVE_FILE
from hvd_elastic.trainer.elastic import departure


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        pytest.param(None, 24.0, id="0.8 of the grace before the pod is ending"),
        pytest.param(0.0, 24.0, id="at once after SIGTERM"),
        pytest.param(20.0, 9.0, id="what the pod still waits: the grace less a second of reserve"),
        pytest.param(60.0, 0.0, id="over"),
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
