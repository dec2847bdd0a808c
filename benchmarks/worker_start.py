"""CPU seconds of a worker's start: from its container's start to the standby at `hvd.init()`, and on to a first step.

    python -m benchmarks.worker_start [--rounds 5]

The script is eager PyTorch with AdamW. In turns, in each round:

* imports: a Python with the same imports and `torch._dynamo`, which torch's first optimizer imports, then the script;
* ahead: a worker that imports `torch._dynamo` before the script begins (`HVD_ELASTIC_COMPILER=ahead`);
* later: a worker as it is, which imports it when something uses it.

CPU time, not time: it is the same on a busy machine, but for what others do to the caches. The least of all rounds is
what the work takes, the median what it took here.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.report.record import Column, Record, Table, Value
from benchmarks.standby import entry_points_pid, mib, pod, wait_ready
from hvd_elastic.mpijob.contract import ADOPT_FILE, ENV_COMPILER, CompilerImport
from hvd_elastic.system.child_processes import children

SCRIPT: Final = """
import sys, time
import torch
import horovod.torch as hvd

model = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
before = time.process_time()
hvd.init()
optimizer = torch.optim.AdamW(model.parameters())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
model(torch.randn(4, 32)).sum().backward()
optimizer.step()
print(before, time.process_time(), "torch._dynamo" in sys.modules, flush=True)
"""

IMPORTS: Final = "import torch, horovod.torch, torch._dynamo, runpy; runpy.run_path('train.py', run_name='__main__')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start. CPU seconds, of one process each."""

    entry_point: float | None
    to_init: float
    """Of the training process, from its start until it waits at `hvd.init()`."""
    to_step: float
    """From there until its first optimizer step is done."""
    private_mib: float | None
    """Of the standby, as it waits."""

    @property
    def until_waiting(self) -> float:
        """Of all that must run until the worker can be used."""
        return (self.entry_point or 0.0) + self.to_init


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    record = Record(name="worker_start", question="What does the start of a worker take, in CPU time?")
    found: dict[str, list[Start]] = {name: [] for name in ("imports", *reversed(CompilerImport))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        bare(folder)  # byte code and the page cache are there from here
        for number in range(flags.rounds):
            found["imports"].append(bare(folder))
            for compiler in reversed(CompilerImport):
                found[compiler].append(worker(folder, compiler, number))
    record.add(table(found))
    record.write()


def bare(folder: Path) -> Start:
    """The imports and the script, without this project's code."""
    before, after, loaded = said([sys.executable, "-c", IMPORTS], folder)
    assert loaded == "True"
    return Start(entry_point=None, to_init=float(before), to_step=float(after) - float(before), private_mib=None)


def worker(folder: Path, compiler: CompilerImport, number: int) -> Start:
    """A worker from the start of its entry point to the first step of an adopted script."""
    run = folder / f"{compiler}-{number}"
    run.mkdir()
    (run / "train.py").write_text(SCRIPT)
    with pod(run, slots=1, settings={ENV_COMPILER: compiler}) as run_dir:
        wait_ready()
        entry_point = entry_points_pid()
        (standby,) = children(entry_point)
        costs, waiting, private = cpu(entry_point), cpu(standby), mib(standby, "Private_")
        _, after, loaded = said([str(run_dir / ADOPT_FILE), "python", "train.py"], run)
    assert loaded == str(compiler is CompilerImport.AHEAD)
    return Start(entry_point=costs, to_init=waiting, to_step=float(after) - waiting, private_mib=private)


def said(command: list[str], folder: Path) -> list[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()


def cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def table(found: dict[str, list[Start]]) -> Table:
    figures = [
        Column(title=f"{part} {kind}", format=".2f") for part in ("waits", "step") for kind in ("least", "median")
    ]
    columns = [Column(title="start"), Column(title="entry point", format=".2f"), *figures]
    columns += [Column(title="total median", format=".2f"), Column(title="of imports", format=".0%")]
    columns += [Column(title="private MiB", format=".0f")]
    base = statistics.median(start.until_waiting for start in found["imports"])
    rows = [row(name, starts, base) for name, starts in found.items()]
    title = "CPU seconds until a worker waits at hvd.init(), and from there through its first step of AdamW"
    note = "`of imports`: until it waits, entry point included, beside the row `imports`; medians."
    return Table(name="worker-start", title=title, columns=columns, rows=rows, note=note)


def row(name: str, starts: list[Start], base: float) -> list[Value]:
    entry_points = [start.entry_point for start in starts if start.entry_point is not None]
    private = [start.private_mib for start in starts if start.private_mib is not None]
    waits, steps = [start.to_init for start in starts], [start.to_step for start in starts]
    until = statistics.median(start.until_waiting for start in starts)
    return [
        name,
        statistics.median(entry_points) if entry_points else None,
        min(waits),
        statistics.median(waits),
        min(steps),
        statistics.median(steps),
        until + statistics.median(steps),
        until / base,
        statistics.median(private) if private else None,
    ]


if __name__ == "__main__":
    main()
