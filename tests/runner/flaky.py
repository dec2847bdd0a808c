"""A pytest plugin that runs a failed test a second time, and remembers which needed that: `-p tests.runner.flaky`.

A test that passes the second time counts as passed, and the summary shows how it failed. One that needs this again
within its next ten runs fails the session: it is flaky, and it has to be mended. The runs of each test are kept in
`${XDG_CACHE_HOME:-~/.cache}/hvd-elastic/flaky.json`, so that they outlive the checkout.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

from hvd_elastic.system.atomic_file import replace_file

RUNS_KEPT: Final = 10
"""Of each test. A run in which the test failed both times is not kept: nothing hid that failure."""

History = dict[str, list[str]]
"""Node id to the test's latest runs, oldest first: how each first attempt ended, `passed` or `failed`."""


def repeated(history: Mapping[str, list[str]], rescued: Iterable[str]) -> list[str]:
    """Return those of the `rescued` tests that a second attempt had rescued before, in one of the runs kept."""
    return [test for test in rescued if "failed" in history.get(test, [])]


def extended(history: Mapping[str, list[str]], passed: Iterable[str], rescued: Iterable[str]) -> History:
    """Return the history with this session's runs added, at most `RUNS_KEPT` of each test."""
    longer = {test: list(runs) for test, runs in history.items()}
    for tests, outcome in ((passed, "passed"), (rescued, "failed")):
        for test in tests:
            longer[test] = [*longer.get(test, []), outcome][-RUNS_KEPT:]
    return longer


def history_file() -> Path:
    """Return the file that keeps the runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hvd-elastic" / "flaky.json"


def read(path: Path) -> History:
    """Return what the file holds; nothing where there is no file. Raises ValueError where it is not JSON."""
    return json.loads(path.read_text()) if path.exists() else {}


class Reruns:
    """The attempts of one session."""

    def __init__(self) -> None:
        self._passed: list[str] = []
        self._rescued: dict[str, str] = {}
        """Node id to the failure of the first attempt, as text."""
        self._repeated: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failures = [report.longreprtext for report in reports if report.failed]
        if failures:
            if reports[0].failed:
                # A fixture of the module that failed is kept as failed. What belongs to the session stays.
                item.session._setupstate.teardown_exact(item.session)  # type: ignore[arg-type]
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        if not any(report.failed for report in reports):
            if failures:
                self._rescued[item.nodeid] = "\n".join(failures)
            elif not any(report.skipped for report in reports):
                self._passed.append(item.nodeid)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        path = history_file()
        history = read(path)
        self._repeated = repeated(history, self._rescued)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(extended(history, self._passed, self._rescued), indent=1) + "\n")
        if self._repeated and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._rescued:
            return
        terminalreporter.section("passed only the second time")
        for test, failure in self._rescued.items():
            terminalreporter.write_line(f"{test}\n{failure}\n")
        for test in self._repeated:
            terminalreporter.write_line(
                f"FAILED {test}: it failed at first in an earlier run as well, within its last {RUNS_KEPT}; "
                f"make it reliable (runs: {history_file()})",
                red=True,
            )


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the session. With xdist each worker would keep a history of its own: it is refused."""
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError("tests.runner.flaky keeps one history: run it without -n")
    config.pluginmanager.register(Reruns(), "flaky-reruns")
