"""Run benchmarks, and put all that they have found on one page.

    make report          python -m benchmarks.report [NAME ...] [--recorded] [--cluster] [--output out/report]

Writes `index.html`, which needs no network, and each table as CSV. Without names it runs what any machine can run. A
benchmark that fails, or that lacks what it reads, is on the page too, with what it said.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.report.page import Section, write_page
from benchmarks.report.record import FOLDER, Record

ANYWHERE: Final = (
    "same_training",
    "simulated_traces",
    "step_time",
    "checkpoint_interval",
    "simulate",
    "launcher_decisions",
    "worker_start",
    "sharded_optimizer",
)
"""Need neither a cluster nor a quiet machine: they count, or take CPU time."""

ON_A_CLUSTER: Final = ("cluster", "recorded_days", "simulation_truth")
"""Bring up the test cluster, for some ten minutes to an hour each."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join((*ANYWHERE, *ON_A_CLUSTER))}")
    parser.add_argument("--recorded", action="store_true", help="run nothing: show what was recorded before")
    parser.add_argument("--cluster", action="store_true", help="run those that need the test cluster, too")
    parser.add_argument("--output", type=Path, default=Path("out/report"))
    flags = parser.parse_args()
    known = (*ANYWHERE, *ON_A_CLUSTER)
    unknown = [name for name in flags.names if name not in known]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(known)})")
    names = flags.names or (known if flags.cluster or flags.recorded else ANYWHERE)
    sections = [section(name, run=not flags.recorded) for name in names]
    print(f"written: {write_page(sections, flags.output)}")
    return 0 if all(each.record for each in sections) else 1


def section(name: str, *, run: bool) -> Section:
    """What a benchmark has found, after it was run if `run` says so."""
    path = FOLDER / f"{name}.json"
    said = f"not recorded: python -m benchmarks.{name}"
    if run:
        path.unlink(missing_ok=True)
        said = output_of([sys.executable, "-m", f"benchmarks.{name}"])
    return Section(name=name, record=Record.read(path) if path.exists() else None, said=said)


def output_of(command: Sequence[str]) -> str:
    """Run a benchmark, show what it prints, and return the end of it."""
    print(f"{time.strftime('%H:%M:%S')} {' '.join(command[1:])}", flush=True)
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            lines = [*lines[-19:], line]
    return f"{''.join(lines)}exit code {process.returncode}"


if __name__ == "__main__":
    sys.exit(main())
