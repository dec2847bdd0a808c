"""For tests that end a background thread with an error."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from hvd_elastic.system import background_threads
from hvd_elastic.system.backoff import Backoff


class FailsOnce:
    """Calls `work`, but for the first time, when an error is raised that nobody has foreseen."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("broken")
        return self._work(*arguments, **named)


def fails_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> FailsOnce:
    """Have a method or a function of a module fail at its first call. Threads that fail are soon started again."""
    monkeypatch.setattr(background_threads, "RESTART", Backoff(first_seconds=0.01, most_seconds=0.1))
    failing = FailsOnce(getattr(owner, name))

    def call(*arguments: Any, **named: Any) -> Any:
        return failing(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return failing


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds} s"
        time.sleep(0.005)


def goes_on(name: str, failing: FailsOnce, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the thread of this name has failed, has said so in one line, and works again."""
    wait_for(lambda: failing.calls > 1)
    said = [record.getMessage() for record in caplog.records if f"thread {name} " in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(f"the thread {name} has failed and is started again: RuntimeError: broken (")
