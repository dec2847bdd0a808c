"""Metrics over HTTP: when they are served, and what they cost before somebody asks."""

import importlib.util
import itertools
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from hvd_elastic.mpijob.contract import ENV_METRICS, ENV_METRICS_PORT, ENV_READY_ADDRESS, WORKER_METRICS_PORT
from hvd_elastic.system.http_server import RoutesServer, ServedPage
from hvd_elastic.trainer.telemetry import events, metrics_server
from hvd_elastic.trainer.telemetry.metrics_server import MetricsServer
from tests.failing_threads import fails_once, goes_on, wait_for
from tests.hvd_elastic.worker.pods import eventually

_numbers = itertools.count(10)


@pytest.fixture
def address() -> Iterator[str]:
    """For one test of this process only, because the ports are fixed and stay taken."""
    before = tuple(events._listeners)
    yield f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 200}.{next(_numbers)}"
    for listener in set(events._listeners) - set(before):
        events.unsubscribe(listener)


def scrape(address: str, local_rank: int = 0, path: str = "/metrics") -> str | None:
    url = f"http://{address}:{WORKER_METRICS_PORT + local_rank}{path}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError:
        raise
    except OSError:
        return None


def environment(address: str) -> dict[str, str]:
    return {ENV_METRICS: "1", ENV_READY_ADDRESS: address}


def test_each_process_of_a_worker_has_a_port(address: str) -> None:
    for rank, server in enumerate((MetricsServer(), MetricsServer())):
        assert server.start(rank, environ=environment(address))
        assert not server.start(rank, environ=environment(address)), "once a process"
    events.emit(events.Kind.STEP, rank=5, size=8, step=41)
    for rank in (0, 1):
        text = eventually(partial(scrape, address, rank), "the port")
        assert "hvd_elastic_worker_step 41.0\n" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scrape(address, path="/")


def test_on_nodes_a_job_has_ports_of_its_own(address: str) -> None:
    assert MetricsServer().start(1, environ=environment(address) | {ENV_METRICS_PORT: str(WORKER_METRICS_PORT + 6)})
    assert "hvd_elastic_worker_step" in eventually(partial(scrape, address, 7), "the port")


@pytest.mark.parametrize("value", ["", "0"])
def test_a_job_can_do_without(address: str, value: str) -> None:
    environ, before = environment(address) | {ENV_METRICS: value}, tuple(events._listeners)
    assert not MetricsServer().start(0, environ=environ)
    assert tuple(events._listeners) == before


def test_without_the_library_nothing_is_served(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not MetricsServer().start(0, environ=environment(address))


def test_a_port_that_is_taken_is_served_once_it_is_free(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", metrics_server.__name__)
    with socket.create_server((address, WORKER_METRICS_PORT)):
        assert MetricsServer(retry_seconds=0.01).start(0, environ=environment(address))
        eventually(lambda: len(caplog.records) > 1, "it is tried again")
    assert "hvd_elastic_worker_step 0.0\n" in eventually(lambda: scrape(address), "the port")
    assert {record.levelname for record in caplog.records} == {"DEBUG"}, "nobody needs to do anything about it"


@pytest.mark.core
@pytest.mark.process
def test_nothing_is_imported_before_a_scrape() -> None:
    code = (
        "import sys\n"
        "from hvd_elastic.trainer.telemetry import metrics_server\n"
        "assert metrics_server.THIS_PROCESS.start(0)\n"
        "print('prometheus_client' in sys.modules)\n"
    )
    environ = {**os.environ, ENV_METRICS: "1", ENV_READY_ADDRESS: "127.0.0.1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_an_unforeseen_error_ends_no_metrics(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = fails_once(monkeypatch, MetricsServer, "_serve")
    assert MetricsServer().start(0, environ=environment(address))
    goes_on("metrics", failing, caplog)
    wait_for(lambda: scrape(address) is not None)


def test_a_scrape_that_fails_is_said_in_one_line_and_ever_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> ServedPage:
        raise RuntimeError("broken")

    served = RoutesServer({"/metrics": fail}, port=0, address="127.0.0.1")
    failing = fails_once(monkeypatch, RoutesServer, "service_actions")  # called in each turn of its loop
    served.start()
    goes_on("metrics", failing, caplog)
    for _ in range(5):
        with pytest.raises(OSError, match=r"closed|reset"):
            urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=10)
    served.stop()
    said = [each.getMessage() for each in caplog.records if "request" in each.getMessage()]
    assert len(said) == 3, "the first, the second and the fourth"
    assert said[0].startswith("a request for metrics or health failed: RuntimeError: broken (")
    assert "Traceback" not in capfd.readouterr().err
