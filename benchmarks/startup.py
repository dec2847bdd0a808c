"""Start-up time of the command line, compared in the same run with importing the least that such a tool needs.

    python -m benchmarks.startup [--rounds 15]

Rounds are interleaved and medians compared, so that a busy machine slows all commands alike. Bounds, as multiples of
`python -c "import yaml, click"`: 1.5 for `--help`, 6 for `generate` of one job.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value, spread, spread_columns

JOB = """
name: fashion
image: registry.example.com/fashion:1
command: [python, train.py]
workers: {min: 1, max: 8, gpus: 1}
"""
BOUNDS = {"hvd-elastic --help": 1.5, "hvd-elastic generate": 6.0}
BASE = "import yaml, click"


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    record = Record(name="startup", question="How long does the command line take to start?")
    tool = str(Path(sys.executable).with_name("hvd-elastic"))
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB, encoding="utf-8")
        commands = {
            BASE: [sys.executable, "-c", BASE],
            "hvd-elastic --help": [tool, "--help"],
            "hvd-elastic generate": [tool, "generate", str(job)],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for name, command in commands.items():
                times[name].append(seconds(command))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    kept = True
    rows: list[list[Value]] = []
    for name, values in times.items():
        ratio, bound = medians[name] / medians[BASE], BOUNDS.get(name)
        held = bound is None or ratio <= bound
        kept &= held
        verdict = None if bound is None else "kept" if held else "MISSED"
        rows.append([name, *spread([1000 * value for value in values[1:]]), ratio, bound, verdict])
    record.add(
        Table(
            name="startup",
            title=f"Commands, from start to end, {rounds} rounds",
            columns=(
                Column(title="command"),
                *spread_columns("ms", format=".0f"),
                Column(title="times the first", format=".2f"),
                Column(title="bound", format=".1f"),
                Column(title=""),
            ),
            rows=rows,
        )
    )
    record.promise(
        *(
            Aim(what=f"{name}, times the start of Python with yaml and click", bound=bound, measured=ratio)
            for name, bound in BOUNDS.items()
            for ratio in [medians[name] / medians[BASE]]
        )
    )
    record.write()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
