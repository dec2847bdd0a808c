"""How long training stands still for a change of its size, from three processes to hundreds, on this machine.

    python -m benchmarks.world_size [--sizes 3 16 64] [--stock 3] [--rounds N] [--patience SECONDS]

A job trains in a world of each size: three hosts of one process, else hosts of eight. One host leaves, it comes back,
and a process is killed. A stall is the longest pause of the survivor that waits longest, less its usual step: with many
processes on few cores the step itself is long. The model is tiny, and the processes are forks of one that has imported
torch, so that hundreds of them fit.

`--stock`: sizes at which Horovod's own launcher and worker side are measured too, with its own defaults. One machine
has only three hosts for it, which share the processes.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.launcher import WORKER, progress
from benchmarks.report.aim import Aim
from benchmarks.report.record import NEVER, Column, Record, Table, Value, spread, spread_columns
from testbed.local import forkserver
from testbed.local.harness import Job, own_addresses
from testbed.local.harness import job as make_job

STEPS_AFTER: Final = 5
"""Steps of each process after a change, so that a second one right after the first counts too."""

SLOTS: Final = 8
"""Processes of a host in all worlds but that of three."""

AIMS: Final[Mapping[int, Mapping[str, float]]] = {
    3: {"grow by a host": 0.10, "shrink by a host": 0.05},
    16: {"grow by a host": 0.5, "shrink by a host": 0.5, "a process is killed": 0.5},
    64: {"grow by a host": 1.0, "shrink by a host": 1.0, "a process is killed": 1.0},
    256: {"grow by a host": 5.0, "shrink by a host": 5.0, "a process is killed": 5.0},
}
"""Seconds, at most."""

CHANGES: Final = ("shrink by a host", "grow by a host", "a process is killed")


@dataclass(slots=True, kw_only=True)
class Trial:
    """A job under one launcher."""

    job: Job
    start: Callable[[Job, int], None]
    offer: Callable[[Job, list[str]], None]
    hosts: list[str]
    """`ALIAS:SLOTS` of all."""
    patience: float

    def begin(self) -> bool:
        """Start it. Returns whether all hosts train."""
        self.offer(self.job, self.hosts)
        self.start(self.job, _slots(self.hosts))
        return self._trains(_slots(self.hosts), time.time(), steps=3 * STEPS_AFTER)

    def change(self, label: str) -> float:
        """Make the change, and return for how many seconds training stood still."""
        began, size = time.time(), _slots(self.hosts)
        if label == "shrink by a host":
            size -= _slots(self.hosts[-1:])
            self.offer(self.job, self.hosts[:-1])
        elif label == "grow by a host":
            self.offer(self.job, self.hosts)
        else:
            self.job.kill(f"{self.hosts[-1].partition(':')[0]}:0")
            size = 0  # whether others of its host train on differs between launchers
        return self._stall(began) if self._trains(size, began) else NEVER

    def _trains(self, size: int, since: float, *, steps: int = STEPS_AFTER) -> bool:
        """Whether all take so many steps in another world (of that size, if it is not 0) within the patience."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline and self.job.process is not None and self.job.process.poll() is None:
            joined = [e for e in self.job.events("joined") if e["time"] > since and size in (0, e["size"])]
            if joined:
                world = joined[-1]["size"]
                taken = [e for e in self.job.events("step") if e["time"] > joined[-1]["time"] and e["size"] == world]
                if len(taken) >= steps * world:
                    return True
            time.sleep(0.05)
        return False

    def _stall(self, began: float) -> float:
        """The longest pause since then of any process that trained before, less its usual pause before."""
        times: dict[int, list[float]] = {}
        for event in self.job.events("step"):
            times.setdefault(event["pid"], []).append(event["time"])
        stalls = [0.0]
        for each in times.values():
            before = [later - earlier for earlier, later in itertools.pairwise(each) if later <= began]
            after = [later - earlier for earlier, later in itertools.pairwise(each) if later > began]
            if len(before) >= STEPS_AFTER and len(after) >= STEPS_AFTER:
                stalls.append(max(after) - statistics.median(before[-3 * STEPS_AFTER :]))
        return max(stalls)


def _slots(hosts: Sequence[str]) -> int:
    return sum(int(host.partition(":")[2]) for host in hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How a job is started, and how it gets its hosts."""

    name: str
    start: Callable[[Job, int], None]
    offer: Callable[[Job, list[str]], None]
    hosts: Callable[[int], list[str]]


def launch(job: Job, size: int) -> None:
    job.launch(*_flags(size), command=[*forkserver.python(), WORKER, "--patched"])


def horovodrun(job: Job, size: int) -> None:
    job.horovodrun(*_flags(size), discovery=job.listing_script(), command=[*forkserver.python(), WORKER])


def _flags(size: int) -> Sequence[str]:
    return "-np", str(size), "--min-np", "1", "--max-np", str(size)


def our_hosts(size: int) -> list[str]:
    slots = 1 if size == 3 else SLOTS
    return [f"h{number}:{slots}" for number in range(size // slots)]


def stock_hosts(size: int) -> list[str]:
    names = own_addresses()
    return [f"{name}:{size // 3 + (number < size % 3)}" for number, name in enumerate(names)]


OURS: Final = Launcher(name="launch", start=launch, offer=lambda job, hosts: job.hosts(*hosts), hosts=our_hosts)
STOCK: Final = Launcher(
    name="horovodrun", start=horovodrun, offer=lambda job, hosts: job.list_hosts(*hosts), hosts=stock_hosts
)

Found = dict[tuple[str, int, str], list[float]]
"""Seconds, by launcher, size and change."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 16, 64])
    parser.add_argument("--stock", type=int, nargs="*", default=[3], help="sizes of horovodrun")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds without a step that count as never")
    flags = parser.parse_args()
    if wrong := [str(size) for size in flags.sizes if size != 3 and (size % SLOTS or size < 2 * SLOTS)]:
        parser.error(f"{', '.join(wrong)}: 3, or several hosts of {SLOTS} processes")
    os.environ |= {"OMP_NUM_THREADS": "1", "WORKER_WIDTH": "8"}
    record = Record(name="world_size", question="How long does training stand still, in small worlds and large ones?")
    found: Found = {}
    for launcher, sizes in ((OURS, flags.sizes), (STOCK, flags.stock)):
        for size in sizes:
            measure(found, launcher, size, rounds=flags.rounds, patience=flags.patience)
    record.add(table(found, sorted({*flags.sizes, *flags.stock})))
    record.promise(*aims(found))
    record.write()


def measure(found: Found, launcher: Launcher, size: int, *, rounds: int, patience: float) -> None:
    """Make each change `rounds` times. A job that cannot go on gets a successor."""
    for label in CHANGES:
        found[launcher.name, size, label] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, make_job(Path(folder), step_seconds=0.02) as job:
            trial = Trial(
                job=job, start=launcher.start, offer=launcher.offer, hosts=launcher.hosts(size), patience=patience
            )
            if not trial.begin():
                progress(f"{launcher.name}, {size}: the job did not start")
                continue
            for label in CHANGES:
                seconds = trial.change(label)
                found[launcher.name, size, label].append(seconds)
                progress(f"{launcher.name}, {size}: {label}: {seconds:.3f} s")
                if seconds == NEVER:
                    break


def aims(found: Found) -> Iterator[Aim]:
    for size, bounds in AIMS.items():
        for label, bound in bounds.items():
            seconds = found.get((OURS.name, size, label))
            measured = statistics.median(seconds) if seconds else None
            yield Aim(what=f"seconds, {size} processes, {label}", bound=bound, measured=measured, format=".3f")


def table(found: Found, sizes: Sequence[int]) -> Table:
    rows: list[list[Value]] = []
    for size, label in itertools.product(sizes, CHANGES):
        cells = [spread(found.get((launcher.name, size, label), [])) for launcher in (OURS, STOCK)]
        rows.append([size, label, *cells[0], *cells[1]])
    return Table(
        name="world-size",
        title="Seconds for which the survivor that waits longest stands still, its usual step taken off",
        columns=(
            Column(title="processes"),
            Column(title="change"),
            *spread_columns("launch", format=".3f"),
            *spread_columns("horovodrun", format=".3f"),
        ),
        rows=rows,
    )


if __name__ == "__main__":
    main()
