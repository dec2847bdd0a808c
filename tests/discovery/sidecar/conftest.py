"""Here nobody makes or deletes pods for the job: a status that waits for the operator would wait for ever."""

import pytest

from hvd_elastic.discovery.rules import operator_lag


@pytest.fixture(autouse=True)
def _no_operator_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_lag, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(operator_lag, "HELD_SECONDS", 0.0)
