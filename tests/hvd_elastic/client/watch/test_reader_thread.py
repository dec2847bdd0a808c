"""The thread that reads the cluster for the live view, and an error that nobody has foreseen."""

from typing import Any

import pytest
from rich.console import Console

from hvd_elastic.client.watch import live_watch
from hvd_elastic.client.watch.live_watch import LiveWatch
from hvd_elastic.system.background_threads import start_thread
from tests.failing_threads import fails_once, goes_on, wait_for


def test_an_error_is_shown_and_the_view_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_watch, "READ_SECONDS", 0.2)
    failing = fails_once(monkeypatch, live_watch, "list_job_states")
    monkeypatch.setattr(failing, "_work", lambda *_: [])
    cluster: Any = None
    view = LiveWatch(cluster, Console(width=120), job=None, namespace=None)
    start_thread("reader", view._read_on, log=live_watch.log)
    wait_for(lambda: view._trouble.startswith("RuntimeError: broken ("))
    wait_for(lambda: view._shown == [] and not view._trouble)


def test_the_thread_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = fails_once(monkeypatch, LiveWatch, "_reader")
    monkeypatch.setattr(live_watch, "list_job_states", lambda *_: [])
    cluster: Any = None
    view = LiveWatch(cluster, Console(width=120), job=None, namespace=None)
    start_thread("reader", view._read_on, log=live_watch.log)
    goes_on("reader", failing, caplog)
    wait_for(lambda: view._shown == [])
