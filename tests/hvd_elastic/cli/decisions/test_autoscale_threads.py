"""The thread that keeps the autoscaler's Lease, and an error that nobody has foreseen."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from hvd_elastic.cli.decisions import autoscale
from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.autoscale import leadership
from testbed.kube_api import KubeApi, Request, Status
from tests.discovery.conftest import until
from tests.failing_threads import fails_once, goes_on


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


def test_the_lease_is_renewed_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(leadership, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    failing = fails_once(monkeypatch, leadership.Leadership, "attempt")
    monkeypatch.setattr(failing, "_work", lambda _: True)
    cluster: Any = ClusterClient
    candidate = leadership.Leadership(cluster, identity="one", namespace="default")

    def run(_stop: Event, **_: object) -> None:
        goes_on("lease", failing, caplog)

    autoscale._run(run, candidate, 1.0, None)


def test_the_alive_file_tells_whether_the_api_server_answers(
    api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one who waits for the Lease; it is all that he asks for."""
    cluster = ClusterClient(Session(Login(server=f"http://127.0.0.1:{api.port}")))
    monkeypatch.setattr(leadership, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    file = tmp_path / "alive"
    leadership.Leadership(cluster, identity="other", namespace="default").attempt()

    def is_touched(alive: Callable[[], None]) -> bool:
        file.unlink(missing_ok=True)
        alive()
        return file.exists()

    def run(_stop: Event, *, period: float, alive: Callable[[], None]) -> None:
        assert not candidate.holds()
        until(lambda: is_touched(alive))
        api.fault = refuse
        until(lambda: not is_touched(alive))
        api.fault = lambda _request: None
        until(lambda: is_touched(alive))

    def refuse(_request: Request) -> None:
        raise Status(401)

    candidate = leadership.Leadership(cluster, identity="one", namespace="default")
    autoscale._run(run, candidate, 1.0, file)
