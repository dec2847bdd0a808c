"""`make test` and `make test-process` leave nothing out."""

import itertools
import re
from pathlib import Path

import pytest

from testbed.debian_programs import MISSING, Tool, needed, skip_for
from tests import conftest
from tests.runner import suite

MARKS = ("cluster", "faults", "gpu", "image", "process", "thorough", "core", "hypothesis", "stock")
TESTS = Path(__file__).parent


def is_selected(part: str, marks: frozenset[str]) -> bool:
    """Whether pytest's `-m` takes a test that has these marks."""
    return bool(eval(suite.SELECTIONS[part], {mark: mark in marks for mark in MARKS}))


def combinations() -> list[frozenset[str]]:
    return [frozenset(some) for n in range(len(MARKS) + 1) for some in itertools.combinations(MARKS, n)]


def test_every_test_is_in_one_of_them_unless_a_mark_says_that_it_needs_more() -> None:
    for marks in combinations():
        needs_more = bool(marks & {"cluster", "faults", "gpu", "image"})
        assert any(is_selected(part, marks) for part in suite.SELECTIONS) is not needs_more, marks


def test_what_starts_processes_is_in_the_first_where_it_is_core_and_properties_are_in_both() -> None:
    assert not is_selected("quick", frozenset({"process", "stock"}))
    assert is_selected("quick", frozenset({"process", "core"}))
    assert not is_selected("process", frozenset({"process", "core"}))
    assert not is_selected("quick", frozenset({"thorough", "hypothesis"}))
    assert is_selected("quick", frozenset({"thorough", "core"}))
    assert all(is_selected(part, frozenset({"hypothesis"})) for part in suite.SELECTIONS)


class Chosen:
    """As much of pytest's configuration as the choice of files needs."""

    def __init__(self, part: str) -> None:
        self._part = part

    def getoption(self, _name: str) -> str:
        return self._part


def collected(part: str) -> set[Path]:
    """The files of tests that a run of pytest over `tests` with this `--torch` comes to see."""

    def below(folder: Path) -> set[Path]:
        seen = [path for path in folder.iterdir() if not conftest.pytest_ignore_collect(path, Chosen(part))]  # type: ignore[arg-type]
        files = {path for path in seen if path.name.startswith("test_") and path.suffix == ".py"}
        return files.union(*(below(path) for path in seen if path.is_dir()))

    return below(TESTS)


def test_the_runs_with_and_without_torch_share_the_files_between_them() -> None:
    without, only = collected("without"), collected("only")
    assert without | only == set(TESTS.rglob("test_*.py"))
    assert not without & only
    assert set(suite.RUNS) == {"without", "only"}


def test_no_property_has_a_number_of_tries_that_no_profile_changes() -> None:
    fixed = re.compile(r"max_examples\s*=\s*\d")
    assert [path for path in TESTS.rglob("test_*.py") if fixed.search(path.read_text())] == []


REPORT = """<testsuites><testsuite>
<testcase classname="a" name="passes" time="0.5"/>
<testcase classname="a" name="browses" time="0.1"><skipped type="pytest.skip" message="{chromium}"/></testcase>
<testcase classname="a" name="builds" time="0.1"><skipped type="pytest.skip" message="{go}"/></testcase>
<testcase classname="a" name="builds_again" time="0.1"><skipped type="pytest.skip" message="{go}"/></testcase>
<testcase classname="a" name="mounts" time="0.1"><skipped type="pytest.skip" message="only root may"/></testcase>
<testcase classname="a" name="lacks_a_patch" time="2.5"><skipped type="pytest.xfail" message="lacks x"/></testcase>
</testsuite></testsuites>"""


def reason(program: str, package: str) -> str:
    with pytest.raises(pytest.skip.Exception) as skipped:
        skip_for(Tool(program=program, package=package))
    return str(skipped.value)


def test_one_line_says_what_was_skipped_why_and_what_brings_it(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(chromium=reason("chromium", "chromium"), go=reason("go", "golang-go")))
    ended = list(suite.read_report(report))
    assert max(ended, key=lambda one: one.seconds).name == "a::lacks_a_patch"
    assert suite.summary(ended) == (
        "skipped 4 of 6 tests: 2 for want of go, 1 for want of chromium, 1 for reasons that stand with them above; "
        "the rest comes with: sudo apt-get install chromium golang-go"
    )
    assert suite.summary([one for one in ended if one.skipped is None]).endswith("none was skipped")
    assert list(suite.read_report(tmp_path / "none.xml")) == []


def test_a_tool_that_is_missing_skips_the_test_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(pytest.skip.Exception) as skipped:
        needed("ip")
    found = MISSING.match(str(skipped.value))
    assert found is not None
    assert found.groupdict() == {"program": "ip", "package": "iproute2"}
