"""`hvd-elastic launch` with either engine beside stock `horovodrun`, on this machine, with a real job over Gloo.

    python -m benchmarks.launcher [--rounds N] [--stock-rounds N] [--patience SECONDS]

Over torch.distributed the job has a DistributedDataParallel, and our State in the place of Horovod's.

A stall is the longest pause between two steps around the change, of the survivor for which it is longest. A job that
ends, or takes no step in its new size within the patience, is reported so, and the next change gets a new job.

Stock runs Horovod's own worker side and its own defaults (Gloo time-out 30 s, a look at the hosts each second), the
product the patched one and its own defaults (10 s, inotify). Both start their processes without ssh and standby,
commit each step, and have what they import in the page cache. The newcomer that dies is killed at the worst moment of
each: before its `hvd.init()`, while the others wait for it (stock), and when the others stop training for it (launch).
"""

import argparse
import contextlib
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value, spread, spread_columns
from hvd_elastic.mpijob.contract import ENV_ENGINE, Engine
from testbed.local.harness import Job, own_addresses
from testbed.local.harness import job as make_job

WORKER = str(Path(__file__).with_name("_launcher_worker.py"))
START_SECONDS = 90.0
TORCH_SECONDS = 0.3
STEPS_AFTER = 10
"""Steps that the world must take in its new size, so that a second reset right after the first one counts too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How a job is started, and how it gets its hosts."""

    name: str
    start: Callable[[Job], None]
    offer: Callable[[Job, list[str]], None]
    hosts: Callable[[], Iterator[str]]
    """Names of hosts that were never used; stock has only three on one machine."""
    killer: Callable[[list[str], str], tuple[str, str]]
    """Takes the members and the newcomer. Returns which process kills the newcomer, and at which point of its code."""


@dataclass(slots=True)
class Trial:
    """One job, as long as it can be used."""

    job: Job
    launcher: Launcher
    fresh: Iterator[str]
    names: list[str] = field(default_factory=list)
    spare: list[str] = field(default_factory=list)

    def bring(self, count: int, newcomers: int) -> bool:
        """Make it train on `count` hosts, with names left for newcomers. Returns whether that worked."""
        missing = count + newcomers - len(self.names) - len(self.spare)
        self.spare += itertools.islice(self.fresh, max(0, missing))
        while len(self.names) < count and self.spare:
            self.names.append(self.spare.pop(0))
        if len(self.names) < count or len(self.spare) < newcomers:
            return False
        self.offer(self.names[:count])
        if self.job.process is None:
            self.launcher.start(self.job)
        return self.steps(count, time.time(), START_SECONDS)

    def offer(self, names: list[str]) -> None:
        """These hosts from now on."""
        self.names = names
        self.launcher.offer(self.job, names)

    def steps(self, size: int, since: float, seconds: float) -> bool:
        """Whether every host takes STEPS_AFTER steps in a world of that size within the time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.runs():
            events = [e for e in self.job.events("step") if e["time"] > since and e["size"] == size]
            if all(sum(e["name"] == f"{name}:0" for e in events) >= STEPS_AFTER for name in self.names):
                return True
            time.sleep(0.02)
        return False

    def runs(self) -> bool:
        """Whether the launcher has not ended."""
        return self.job.process is not None and self.job.process.poll() is None

    def stall(self, since: float) -> float:
        """The longest pause of any host that trained before `since`."""
        pauses: list[float] = []
        for name in self.names:
            times = [e["time"] for e in self.job.events("step", f"{name}:0")]
            if times[0] < since:
                # Pauses that ended before belong to an earlier change.
                pauses.append(max(later - earlier for earlier, later in itertools.pairwise(times) if later > since))
        return max(pauses)


# --- The changes; their effects are measured afterwards ------------------------------------------------------


def grow(trial: Trial) -> None:
    trial.offer([*trial.names, trial.spare.pop()])


def shrink(trial: Trial) -> None:
    trial.offer(trial.names[:-1])


def kill(trial: Trial, rank: int) -> None:
    name = trial.names.pop(rank)
    trial.job.kill(f"{name}:0")


def newcomer_dies(trial: Trial) -> None:
    newcomer = trial.spare.pop()
    killer, point = trial.launcher.killer(trial.names, newcomer)
    trial.job.order(f"{killer}:0", point, f"{newcomer}:0")
    trial.launcher.offer(trial.job, [*trial.names, newcomer])
    deadline = time.monotonic() + START_SECONDS
    while not trial.job.events("kills") and time.monotonic() < deadline and trial.runs():
        time.sleep(0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row of the table."""

    label: str
    before: int
    newcomers: int = 0
    make: Callable[[Trial], None]
    bound: float | None
    """Seconds that were promised, at most; None: stock's."""
    times_stock: float = 0.0
    """How many times as long stock was said to take, at least."""


CHANGES = (
    Change(
        label="grow 1 -> 2",
        before=1,
        newcomers=1,
        make=grow,
        bound=0.3,
        times_stock=10.0,
    ),
    Change(label="shrink 2 -> 1", before=2, make=shrink, bound=None),
    Change(
        label="SIGKILL of rank 1 of 3",
        before=3,
        make=partial(kill, rank=1),
        bound=0.5,
    ),
    Change(
        label="SIGKILL of rank 0 of 3",
        before=3,
        make=partial(kill, rank=0),
        bound=0.5,
    ),
    Change(
        label="death of a newcomer to 2",
        before=2,
        newcomers=1,
        make=newcomer_dies,
        bound=1.0,
    ),
)
NOTICE = Change(
    label="event to notification",
    before=2,
    make=shrink,
    bound=0.02,
)


@dataclass(slots=True)
class Row:
    """What was seen of one change under one launcher."""

    seconds: list[float] = field(default_factory=list)
    never: list[str] = field(default_factory=list)

    def median(self) -> float:
        """Infinite if more than half of the tries failed; NaN without a try."""
        return statistics.median([*self.seconds, *(float("inf") for _ in self.never)] or [float("nan")])

    def cells(self) -> list[Value]:
        """In the table: the spread of the seconds, and why it never went on."""
        counted = Counter(self.never)
        return [*spread(self.seconds), ", ".join(f"{times} x {why}" for why, times in counted.items()) or None]


class Bench:
    """Makes the changes under one launcher; a new job is started only when the last one cannot go on."""

    def __init__(self, launcher: Launcher, patience: float) -> None:
        self._launcher, self._patience = launcher, patience
        self._trial: Trial | None = None
        self._stack = contextlib.ExitStack()
        self.rows = {change.label: Row() for change in (*CHANGES, NOTICE)}

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, change: Change) -> None:
        """Make the change once, in a job that fits."""
        row = self.rows[change.label]
        trial = self._ready(change)
        if trial is None:
            row.never.append("the job did not start")
            return
        began = time.time()
        change.make(trial)
        if not trial.steps(len(trial.names), time.time(), self._patience):
            row.never.append(f"no step in {self._patience:g} s" if trial.runs() else "the job ended")
            progress(f"{self._launcher.name}: {change.label}: {row.never[-1]}")
            self._drop()
            return
        row.seconds.append(trial.stall(began))
        if change.make is shrink:
            notified = [e["time"] for e in trial.job.events("notified") if e["time"] > began]
            self.rows[NOTICE.label].seconds.append(notified[0] - began)
        progress(f"{self._launcher.name}: {change.label}: {row.seconds[-1]:.3f} s")

    def _ready(self, change: Change) -> Trial | None:
        for _ in range(2):
            if self._trial is None:
                folder = self._stack.enter_context(tempfile.TemporaryDirectory())
                job = self._stack.enter_context(make_job(Path(folder), step_seconds=0.02))
                self._trial = Trial(job, self._launcher, self._launcher.hosts())
            if self._trial.bring(change.before, change.newcomers):
                return self._trial
            self._drop()
        return None

    def _drop(self) -> None:
        self._stack.close()
        self._trial = None


# --- The launchers ------------------------------------------------------------------------------------------------

FLAGS = ("-np", "1", "--min-np", "1", "--max-np", "4")


def launch(job: Job) -> None:
    job.launch(*FLAGS, command=[sys.executable, WORKER, "--patched"])


def launch_torch(job: Job) -> None:
    job.environment[ENV_ENGINE] = Engine.TORCH
    launch(job)


def horovodrun(job: Job) -> None:
    job.horovodrun(*FLAGS, discovery=job.listing_script(), command=[sys.executable, WORKER])


OURS = Launcher(
    name="launch",
    start=launch,
    offer=lambda job, names: job.hosts(*names),
    hosts=lambda: (f"h{number}" for number in itertools.count()),
    killer=lambda names, _: (names[0], "interrupted"),
)
OURS_TORCH = replace(OURS, name="launch, torch.distributed", start=launch_torch)
STOCK = Launcher(
    name="horovodrun",
    start=horovodrun,
    offer=lambda job, names: job.list_hosts(*(f"{name}:1" for name in names)),
    hosts=lambda: iter(own_addresses()),
    killer=lambda _, newcomer: (newcomer, "arriving"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stock-rounds", type=int, default=1)
    parser.add_argument("--patience", type=float, default=45.0, help="seconds without a step that count as never")
    flags = parser.parse_args()
    record = Record(name="launcher", question="How long does training stand still, under each launcher?")
    os.environ["OMP_NUM_THREADS"] = "1"
    subprocess.run([sys.executable, "-c", "import horovod.torch, torch._dynamo"], check=True)
    counts = ((OURS, flags.rounds), (OURS_TORCH, flags.rounds), (STOCK, flags.stock_rounds))
    ours, over_torch, stock = (run(launcher, count, flags.patience) for launcher, count in counts)
    record.add(table(ours, over_torch, stock))
    record.promise(*aims(ours, stock), *torch_aims(over_torch))
    record.write()


def run(launcher: Launcher, rounds: int, patience: float) -> dict[str, Row]:
    with Bench(launcher, patience) as bench:
        for _ in range(rounds):
            for change in CHANGES:
                bench.measure(change)
        return bench.rows


def aims(ours: dict[str, Row], stock: dict[str, Row]) -> Iterator[Aim]:
    """What was promised of the medians."""
    for change in (*CHANGES, NOTICE):
        mine, theirs = ours[change.label].median(), stock[change.label].median()
        if math.isnan(mine) or math.isnan(theirs):
            continue
        what = f"seconds, {change.label}" + (", beside stock" if change.bound is None else "")
        yield Aim(what=what, bound=theirs if change.bound is None else change.bound, measured=mine, format=".3f")
        if change.times_stock:
            what = f"times as long under stock, {change.label}"
            yield Aim(what=what, bound=change.times_stock, measured=theirs / mine, is_least=True, format=".0f")


def torch_aims(over_torch: dict[str, Row]) -> Iterator[Aim]:
    """What was promised over torch.distributed, where a kill is no slower than a resize."""
    for change in (each for each in CHANGES if each.make is not newcomer_dies):
        if not math.isnan(measured := over_torch[change.label].median()):
            what = f"seconds, {change.label}, over torch.distributed"
            yield Aim(what=what, bound=TORCH_SECONDS, measured=measured, format=".3f")


def table(ours: dict[str, Row], over_torch: dict[str, Row], stock: dict[str, Row]) -> Table:
    rows: list[list[Value]] = [
        [
            change.label,
            *ours[change.label].cells(),
            change.bound,
            *over_torch[change.label].cells(),
            *stock[change.label].cells(),
        ]
        for change in (*CHANGES, NOTICE)
    ]
    return Table(
        name="launcher",
        title="Seconds for which the survivor that waits longest stands still",
        columns=(
            Column(title="change"),
            *spread_columns("launch", format=".3f"),
            Column(title="launch, never"),
            Column(title="promised, at most", format=".3g"),
            *spread_columns("torch.distributed", format=".3f"),
            Column(title="torch.distributed, never"),
            *spread_columns("horovodrun", format=".3f"),
            Column(title="horovodrun, never"),
        ),
        rows=rows,
        note=f"`{NOTICE.label}` is from the change of the hosts until a worker is notified.",
    )


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
