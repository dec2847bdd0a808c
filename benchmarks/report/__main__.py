"""Run benchmarks, and put all that they have found on one page.

    make report          python -m benchmarks.report [NAME ...] [--recorded] [--cluster] [--full] [--output out/report]

Writes `index.html`, which needs no network, and each table as CSV. Without names it runs what any machine can run, each
with a size that ends within minutes (benchmarks/report/programs.py), and names the others. `--full` lets each take its
own size: hours in all. A benchmark that fails, or that lacks what it reads, is on the page too, with what it said.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report.page import Section, write_page
from benchmarks.report.programs import PROGRAMS, Program
from benchmarks.report.record import FOLDER, Record


def main() -> int:
    known = {program.name: program for program in PROGRAMS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--recorded", action="store_true", help="run nothing: show what was recorded before")
    parser.add_argument("--cluster", action="store_true", help="run those that need the test cluster, too")
    parser.add_argument("--full", action="store_true", help="do not make them smaller than they are by themselves")
    parser.add_argument("--output", type=Path, default=Path("out/report"))
    flags = parser.parse_args()
    unknown = [name for name in flags.names if name not in known]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(known)})")
    named = [known[name] for name in flags.names]
    chosen = named or [each for each in PROGRAMS if not each.left_out or flags.cluster or flags.recorded]
    left_out = [] if named else [each for each in PROGRAMS if each not in chosen]
    sections = [section(program, run=not flags.recorded, full=flags.full) for program in chosen]
    print(f"written: {write_page(sections, flags.output, left_out=left_out)}")
    return 0 if all(each.record for each in sections) else 1


def section(program: Program, *, run: bool, full: bool) -> Section:
    """What a benchmark has found, after it was run if `run` says so."""
    path, command = FOLDER / f"{program.name}.json", program.command(full=full)
    said = f"not recorded: python {' '.join(command)}"
    if run:
        path.unlink(missing_ok=True)
        said = output_of([sys.executable, *command])
    return Section(name=program.name, record=Record.read(path) if path.exists() else None, said=said)


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
