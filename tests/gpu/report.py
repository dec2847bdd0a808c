"""A pytest plugin for `make test-gpu` (`-p tests.gpu.report`): the machine, and what was shown on it and what was not.

Each test is told by the first sentence of its docstring, with what it measured, or the reason why it was skipped.
"""

from typing import TYPE_CHECKING

import pytest

from tests.gpu import machine

if TYPE_CHECKING:
    from collections.abc import Iterable

_TITLES = pytest.StashKey[dict[str, str]]()


def pytest_report_header() -> list[str]:
    """Say what the tests run on."""
    return machine.description()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Remember what each test is about: a report has no more than its name."""
    session.config.stash[_TITLES] = {item.nodeid: _title(item) for item in session.items}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line for each test, and how many need a GPU that is not here."""
    titles = config.stash.get(_TITLES, {})
    terminalreporter.section("what was shown, and on what")
    for line in machine.description():
        terminalreporter.write_line(line)
    for report in _reports(terminalreporter, "passed"):
        where = "on a CPU " if report.nodeid.endswith("cpu]") else "shown    "
        terminalreporter.write_line(f"{where} {titles.get(report.nodeid, report.nodeid)}{_measured(report)}")
    for report in (*_reports(terminalreporter, "failed"), *_reports(terminalreporter, "error")):
        terminalreporter.write_line(f"FAILED    {titles.get(report.nodeid, report.nodeid)}")
    skipped = _reports(terminalreporter, "skipped")
    for report in skipped:
        terminalreporter.write_line(f"not shown {titles.get(report.nodeid, report.nodeid)}: {_reason(report)}")
    if skipped and not machine.gpus():
        terminalreporter.write_line(
            f"No GPU: {len(skipped)} of {len(titles)} tests were skipped, and nothing is known of GPUs by this run."
        )


def _reports(reporter: pytest.TerminalReporter, outcome: str) -> list[pytest.TestReport]:
    found: Iterable[object] = reporter.stats.get(outcome, ())
    return [report for report in found if isinstance(report, pytest.TestReport)]


def _title(item: pytest.Item) -> str:
    text = (getattr(item, "function", None).__doc__ or item.name).strip()
    parameters = item.name.partition("[")[2].rstrip("]")
    sentence = text.partition("\n")[0].split(". ")[0].rstrip(".:")
    return f"{sentence} [{parameters}]" if parameters else sentence


def _measured(report: pytest.TestReport) -> str:
    return "".join(f"; {name}: {value}" for name, value in report.user_properties)


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")
