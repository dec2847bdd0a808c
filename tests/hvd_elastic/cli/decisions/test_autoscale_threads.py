"""The thread that keeps the autoscaler's Lease, and an error that nobody has foreseen."""

from threading import Event
from typing import Any

import pytest

from hvd_elastic.cli.decisions import autoscale
from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.decide.autoscale import leadership
from tests.failing_threads import fails_once, goes_on


def test_the_lease_is_renewed_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(leadership, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    failing = fails_once(monkeypatch, leadership.Leadership, "attempt")
    monkeypatch.setattr(failing, "_work", lambda _: True)
    cluster: Any = ClusterClient
    candidate = leadership.Leadership(cluster, identity="one", namespace="default")

    def run(_stop: Event, **_: object) -> None:
        goes_on("lease", failing, caplog)

    autoscale._run(run, candidate.keep, 1.0, None)
