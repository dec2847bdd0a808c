"""The loop of local hosts and its thread that probes them, and errors that nobody has foreseen."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.discovery import EligibilityRules
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.local.local_cluster import LocalCluster
from tests.failing_threads import fails_once, goes_on, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """Of no hosts."""
    return LocalCluster(
        folder=tmp_path, command=("true",), environment={}, rules=EligibilityRules(slots=1, min_workers=1), names=()
    )


@pytest.fixture
def serving(cluster: LocalCluster) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=cluster.serve)
    yield thread
    cluster.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_a_round_that_fails_is_not_the_last(
    serving: threading.Thread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, for example."""
    failing = fails_once(monkeypatch, LocalCluster, "round")
    serving.start()
    goes_on("local hosts", failing, caplog)


def test_the_hosts_are_probed_on(
    serving: threading.Thread, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = fails_once(monkeypatch, Prober, "turn")
    serving.start()
    goes_on("ready ports", failing, caplog)
    wait_for(lambda: cluster._prober.targets == {})
