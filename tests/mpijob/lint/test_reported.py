"""What stopped people, by their public reports: each is found and told first, and nothing beside it is a false alarm.

The first line of a manifest has the rules that must report it, those left of `|` that keep the job from starting; the
second what it shows, and the report. They follow from the sources of the operators (mpi-operator 0.8.2,
training-operator 1.8.1), of Kubernetes 1.34.4 and of Horovod 0.28.1.
"""

import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from hvd_elastic.cli.submission.lint import command
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.lint_input import read_input
from hvd_elastic.mpijob.lint.rule import Finding
from tests.mpijob.lint.overlay import MANIFESTS

REPORTED = sorted((MANIFESTS / "reported").glob("*.yaml"))
SCREEN = (24, 80)


def check(path: Path) -> lint.LintReport:
    found = read_input(path.read_text(), path.name)
    assert found.problems == ()
    return lint.check(list(found.documents))


def ids(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.rule.id for finding in findings]


@pytest.mark.parametrize("path", REPORTED, ids=lambda path: path.stem)
def test_what_was_reported_is_found_and_nothing_beside_it(path: Path) -> None:
    stops, _, rest = path.read_text().partition("\n")[0].removeprefix("#").partition("|")
    report = check(path)
    assert sorted(set(ids(report.findings))) == sorted([*stops.split(), *rest.split()])
    first = [identity for identity in ids(report.errors) if identity in stops.split()]
    assert ids(report.errors)[: len(first)] == first
    assert set(first) == set(stops.split())


@pytest.mark.parametrize("path", REPORTED, ids=lambda path: path.stem)
def test_the_errors_of_a_job_fit_a_screen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    result = CliRunner().invoke(command, ["--errors", path.name])
    rows = sum(math.ceil(len(line) / SCREEN[1]) for line in result.output.splitlines())
    assert rows < SCREEN[0]
