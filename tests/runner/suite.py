"""`make test` and `make test-process`: which tests, in which runs of pytest, and what is said at the end.

    python -m tests.runner.suite quick [PYTEST ARGUMENTS]      what needs no process, each capability once for real
    python -m tests.runner.suite process [PYTEST ARGUMENTS]    the rest, and every property as often as it is worth

Together they are every test that needs neither a cluster nor a GPU nor an image.
"""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from testbed import cloud_servers
from testbed.debian_programs import MISSING, install_what_tests_need
from tests import properties

HERE: Final = "not cluster and not faults and not gpu and not image"
"""What any Linux machine can run."""

SELECTIONS: Final = {
    "quick": f"{HERE} and (core or not (process or thorough))",
    "process": f"{HERE} and (hypothesis or ((process or thorough) and not core))",
}
"""In marks. Properties are in both: seldom tried in one, often in the other."""

PROFILES: Final = {"quick": properties.QUICK, "process": properties.FULL}

RUNS: Final = {
    "without": ("-n", "3", "--dist", "load", "--maxschedchunk", "4"),
    "only": ("-n", "3", "--dist", "load", "--maxschedchunk", "1"),
}
"""Runs of pytest by their value of `--torch`, and how each shares two cores. Many a test waits."""

REPORTS: Final = Path("out/tests")
"""Of each run the seconds of all tests, in JUnit's form."""

_NO_TESTS_COLLECTED: Final = 5
_SLOWEST: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A test that has run."""

    name: str
    seconds: float
    """With its set-up and its tear-down."""
    skipped: str | None
    """Why; None where it was not."""


def run(part: str, arguments: Sequence[str]) -> int:
    """Run the tests of `quick` or `process`; return 0 where all passed."""
    install_what_tests_need()
    cloud_servers.prepare()
    codes, ended = set[int](), list[Ended]()
    for torch, sharing in RUNS.items():
        report = REPORTS / f"{part}-{torch}.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "tests", "-m", SELECTIONS[part], f"--torch={torch}", *sharing]
        command += [f"--hypothesis-profile={PROFILES[part]}", f"--junitxml={report}", *arguments]
        codes.add(subprocess.run(command, check=False).returncode)
        ended += read_report(report)
    for one in sorted(ended, key=lambda one: -one.seconds)[:_SLOWEST]:
        print(f"{one.seconds:6.1f} s  {one.name}")
    print(summary(ended))
    return max(codes - {_NO_TESTS_COLLECTED}, default=0)


def read_report(report: Path) -> Iterator[Ended]:
    """Read the tests of a report in JUnit's form; none where pytest did not come to write it."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        yield Ended(
            name=f"{case.get('classname')}::{case.get('name')}",
            seconds=float(case.get("time", 0)),
            skipped=None if skipped is None or skipped.get("type") == "pytest.xfail" else skipped.get("message", ""),
        )


def summary(ended: Sequence[Ended]) -> str:
    """One line: what was skipped, why, and the command that brings what is missing."""
    reasons = [one.skipped for one in ended if one.skipped is not None]
    if not reasons:
        return f"the slowest {_SLOWEST} of {len(ended)} tests are above; none was skipped"
    curable = [found for reason in reasons if (found := MISSING.match(reason))]
    programs = Counter(found["program"] for found in curable)
    parts = [f"{count} for want of {program}" for program, count in programs.most_common()]
    if others := len(reasons) - len(curable):
        parts.append(f"{others} for reasons that stand with them above")
    packages = sorted({found["package"] for found in curable})
    way_out = f"; the rest comes with: sudo apt-get install {' '.join(packages)}" if packages else ""
    return f"skipped {len(reasons)} of {len(ended)} tests: {', '.join(parts)}{way_out}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # it takes pytest along
    sys.exit(run(sys.argv[1], sys.argv[2:]))
