"""Run benchmarks, and put all that they have found on one page.

    make report          python -m benchmarks.report [NAME ...] [--recorded] [--resume] [--cluster] [--full]
                         [--output out/report]

Writes `index.html`, which needs no network, and each table as CSV. Without names it runs what any machine can run, each
with a size that ends within minutes (benchmarks/report/programs.py), and names the others. `--full` lets each take its
own size: hours in all. `--resume` goes on with such a round: what was recorded of this state of the product, at the
same size, stays. A benchmark that fails, or that lacks what it reads, is on the page too, with what it said.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from benchmarks.report.machine import product_digest
from benchmarks.report.page import Section, write_page
from benchmarks.report.programs import PROGRAMS, Program
from benchmarks.report.record import FOLDER, Record


def main() -> int:
    known = {program.name: program for program in PROGRAMS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--recorded", action="store_true", help="run nothing: show what was recorded before")
    parser.add_argument("--resume", action="store_true", help="run only what has no record of this product")
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
    keeps = Kept.ALL if flags.recorded else Kept.OF_THIS_PRODUCT if flags.resume else Kept.NONE
    sections = [section(program, keeps=keeps, full=flags.full) for program in chosen]
    print(f"written: {write_page(sections, flags.output, left_out=left_out)}")
    return 0 if all(each.record for each in sections) else 1


class Kept(Enum):
    """Which records of earlier runs are shown as they are."""

    NONE = auto()
    OF_THIS_PRODUCT = auto()
    """And of this size."""
    ALL = auto()


def section(program: Program, *, keeps: Kept, full: bool) -> Section:
    """What a benchmark has found, after it was run if no record of it is kept."""
    path, command = FOLDER / f"{program.name}.json", program.command(full=full)
    known = Record.read(path) if path.exists() else None
    if keeps is Kept.ALL or (keeps is Kept.OF_THIS_PRODUCT and known and is_of_this_product(known, command)):
        return Section(name=program.name, record=known, said=f"not recorded: python {' '.join(command)}")
    path.unlink(missing_ok=True)
    said = output_of([sys.executable, *command])
    return Section(name=program.name, record=Record.read(path) if path.exists() else None, said=said)


def is_of_this_product(record: Record, command: Sequence[str]) -> bool:
    """Whether it is what this command would measure."""
    return record.product == product_digest() and [*record.options] == [*command[2:]]


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
