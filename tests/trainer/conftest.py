"""What no test of the training may leave behind in the process."""

import pytest

from hvd_elastic.trainer.elastic.mistakes import swallowed_interrupt
from hvd_elastic.trainer.telemetry import events


@pytest.fixture(autouse=True)
def no_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """`elastic.run` subscribes listeners for the life of the process; each test begins without any."""
    monkeypatch.setattr(events, "_listeners", [])


@pytest.fixture(autouse=True)
def no_interrupt() -> None:
    """A test may end with the world; `elastic.run` would go on to the next one."""
    swallowed_interrupt.THIS_PROCESS.taken()
