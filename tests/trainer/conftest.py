"""What no test of the training may leave behind in the process."""

import pytest

from hvd_elastic.trainer.telemetry import events


@pytest.fixture(autouse=True)
def no_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """`elastic.run` subscribes listeners for the life of the process; each test begins without any."""
    monkeypatch.setattr(events, "_listeners", [])
