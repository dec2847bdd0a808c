"""A thread that fails says so and works again; and no thread of the product is started in another way unseen."""

import ast
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.system import background_threads
from hvd_elastic.system.background_threads import ErrorLog, error_words, keep_running, start_thread
from hvd_elastic.system.backoff import Backoff

log = logging.getLogger(__name__)

ROOT = Path(__file__).parents[3]

ENDS_OTHERWISE = {
    "discovery/sidecar/sidecar.py": "the threads without which no list can be trusted: their errors end the sidecar",
    "hvd_elastic/client/connection/cluster_client.py": "the caller waits, and gets the error",
    "hvd_elastic/launcher/remote/ssh.py": "writes once to a command's stdin; an error ends the command",
    "hvd_elastic/launcher/remote/worker_processes.py": "waits for one process; an error is told as a part of its end",
    "hvd_elastic/local/local_job.py": "its loop is kept running within; at its end it kills all hosts",
    "hvd_elastic/system/background_threads.py": "the way itself",
    "trainer/checkpoint/checkpoints.py": "one save; an error is its outcome",
    "trainer/checkpoint/transfer.py": "the caller waits, and gets the error",
    "trainer/data/sample_proof.py": "an error costs one examination, and says so in its words",
    "trainer/state/durable/tier_opening.py": "an error costs one attempt, and the next one follows",
}
"""Modules that start threads by themselves, and what becomes of an error there."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_threads, "RESTART", Backoff(first_seconds=0.001, most_seconds=0.01))


def product_modules() -> Iterator[Path]:
    for folder in ("hvd_elastic", "trainer", "discovery", "mpijob", "priorityclasses"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path:  # the rooms are also linked into hvd_elastic
                yield path


def test_every_other_thread_of_the_product_has_its_reason() -> None:
    starting = {
        str(path.relative_to(ROOT))
        for path in product_modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"threading.Thread", "Thread"}
    }
    assert starting == ENDS_OTHERWISE.keys()


def test_work_that_fails_is_said_once_in_one_line_and_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    begun = iter(range(3))

    def work() -> None:
        if next(begun) < 2:
            raise ValueError("two\nlines")

    thread = start_thread("example", work, log=log)
    thread.join(20)
    assert not thread.is_alive()
    assert thread.daemon
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "the thread example has failed and is started again: ValueError: two lines (test_background"
    )
    assert second == f"{first} (2 times so far)"


def test_what_fails_again_and_again_is_said_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    errors = ErrorLog(log)
    for number in range(1000):
        errors.say("a part has failed", ValueError(f"with another message {number}"))
    assert len(caplog.records) == 10
    assert caplog.records[-1].getMessage().endswith("(512 times so far)")


def test_each_kind_of_error_is_said(caplog: pytest.LogCaptureFixture) -> None:
    errors = ErrorLog(log)
    for error in (ValueError("a"), KeyError("b"), ValueError("c")):
        errors.say("a part has failed", error)
    assert len(caplog.records) == 3


def test_the_pause_grows_and_begins_anew_after_work_that_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    times = iter([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 103.0, 200.0, 200.0])

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            if len(pauses) == 5:
                self.set()
            return self.is_set()

    def fail() -> None:
        raise SystemExit

    monkeypatch.setattr(background_threads, "RESTART", Backoff(first_seconds=1.0, most_seconds=60.0))
    keep_running("example", fail, log=log, stopped=Stopped(), clock=lambda: next(times))
    bounds = [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (0.5, 1.0), (1.0, 2.0)]
    assert all(least <= pause <= most for pause, (least, most) in zip(pauses, bounds, strict=True)), pauses


def test_a_stopped_one_does_not_begin_again() -> None:
    stopped, begun = threading.Event(), []

    def work() -> None:
        begun.append(1)
        stopped.set()
        raise ValueError

    keep_running("example", work, log=log, stopped=stopped)
    assert begun == [1]


def test_a_long_message_is_cut() -> None:
    assert len(error_words(ValueError("x" * 10_000))) < 400
