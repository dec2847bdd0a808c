"""Start-up time of the command line, compared in the same run with importing the least that such a tool needs.

    python -m benchmarks.startup [--rounds 15]

Rounds are interleaved and medians compared, so that a busy machine slows all commands alike. Bounds, as multiples of
`python -c "import yaml, click"`: 1.5 for `--help`, 6 for `generate` of one job.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
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
    for name, median in medians.items():
        ratio, bound = median / medians[BASE], BOUNDS.get(name)
        verdict = "" if bound is None else f"   bound {bound}: {'kept' if ratio <= bound else 'MISSED'}"
        kept &= bound is None or ratio <= bound
        print(f"  {name:<22} {median * 1000:7.0f} ms   {ratio:5.2f} times{verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
