"""What the launcher costs as a job grows: its CPU, its memory and its times, beside stock `horovodrun`.

    python -m benchmarks.launcher_scale [--workers 64 512 1024] [--stock 64] [--slots 8]

Both launchers are real, and so is what they are asked: benchmarks/_stub_workers.py says what a stub worker is. A job is
started, one host leaves, all but half leave, and as many new hosts as are missing come. Neither launcher uses ssh: it
would cost both of them a client for each process. `--stock`: sizes at which horovodrun is measured, too. It starts two
programs on the launcher's side for each worker, one of them a Python of its own.

CPU is that of the launcher and of the Pythons that it starts on its own side. The stubs share the machine with it, so
its CPU tells more than the clock. `launcher's share` is how long all workers wait for it: from the last request for a
place to the last answer and, at `launch`, from the last arrival at the barrier to the last release.

Then Gloo. To form a world, each process looks up each other one in the launcher's store, about 2.5 times, and the
answer holds an address for each process (`connectFullMesh` in Gloo's rendezvous/context.cc, and `http_store.cc` in
Horovod). So requests grow with the square of the size, and bytes with its third power. What one look-up costs is
measured with answers of that length, and multiplied. Up to `--all-lookups` workers all of them are made, as a check.
"""

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from benchmarks._stub_workers import Moment, StubWorkers
from benchmarks.report.growth import growth
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.bench.line_chart import Axis, Line, decades, line_chart
from tests.local.harness import Job
from tests.local.harness import job as make_job

ADDRESS_BYTES: Final = 136
"""Of one process: a sockaddr_storage and a number (`Address::Impl` in Gloo's transport/tcp/address.h)."""
LOOKUPS: Final = 400
"""Of each kind, to see what one costs."""
AT_A_TIME: Final = 4
"""Look-ups. horovodrun lets five connections wait: one more would be tried again a second later."""
SECONDS: Final = 1800.0
"""A deadline for each phase."""
GIVEN_UP: Final = "is written off"
"""What `launch` says of a worker that it waits for no longer. The others go on, in a smaller world."""
PHASES: Final = ("start", "a host leaves", "half are left", "all are back")
LAUNCH, STOCK = "launch", "horovodrun"
MIB: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class Phase:
    """One change of the world, from the launcher's start or the new list of hosts until all train."""

    cpu: float
    """Seconds."""
    seconds: float
    share: float | None
    """Seconds; see the module. None for the start, in which workers wait for each other's starts."""
    pings: int
    """Of workers for which the others waited, which `launch` asks each second whether they live."""


@dataclass(slots=True, kw_only=True)
class Lookups:
    """Seconds of the launcher's CPU for Gloo's look-ups."""

    short: float
    """One whose answer is a host's name."""
    whole: float
    """One whose answer holds an address for each other process."""
    all_seconds: float | None = None
    """Of all look-ups of one world, if they were made."""


@dataclass(slots=True, kw_only=True)
class Scale:
    """What was seen of a launcher at one size."""

    phases: dict[str, Phase] = field(default_factory=dict)
    mib: float | None = None
    """At full size: the launcher and the Pythons that it starts, memory that they share counted once."""
    lookups: Lookups | None = None
    notice_seconds: list[float] = field(default_factory=list)
    """From a new list of hosts to the notification."""
    failure: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 512, 1024])
    parser.add_argument("--stock", type=int, nargs="*", default=[64], help="sizes of horovodrun")
    parser.add_argument("--slots", type=int, default=8, help="workers of a host")
    parser.add_argument("--all-lookups", type=int, default=64, help="largest size at which all look-ups are made")
    flags = parser.parse_args()
    sizes = sorted({*flags.workers, *flags.stock})
    wrong = [str(size) for size in sizes if size < 4 * flags.slots or size % (2 * flags.slots)]
    if wrong:
        parser.error(f"{', '.join(wrong)} workers are not an even number of hosts of {flags.slots}, from four hosts on")
    record = Record(name="launcher_scale", question="How does the launcher's cost grow with the size of a job?")
    threading.stack_size(256 << 10)
    found: dict[tuple[str, int], Scale] = {}
    for size in sizes:
        for name, wanted in ((LAUNCH, flags.workers), (STOCK, flags.stock)):
            if size in wanted:
                found[name, size] = measured(name, size, flags.slots, all_lookups=size <= flags.all_lookups)
    costs = cost_table(found, sizes)
    record.add(costs)
    if len(sizes) > 1:
        record.add(growth(costs, name="launcher-scale-growth"))
        record.pictures["cpu"] = picture(found, sizes)
    record.add(time_table(found, sizes))
    record.add(gloo_table(found, sizes))
    record.write()


# --- One launcher at one size ----------------------------------------------------------------------------------------


class LauncherProcesses:
    """A launcher and the Pythons that it starts on its own side."""

    def __init__(self, pid: int) -> None:
        self._launcher = psutil.Process(pid)
        self._spent: dict[int, float] = {}

    def cpu(self) -> float:
        """CPU seconds so far. One that has ended counts with what it had when it was last seen."""
        for process in self._alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._spent[process.pid] = times.user + times.system
        return sum(self._spent.values())

    def mib(self) -> float:
        """Resident memory; what processes share is divided among them."""
        return sum(map(_shared_mib, self._alive()))

    def _alive(self) -> list[psutil.Process]:
        return [self._launcher, *filter(_is_python, self._launcher.children(recursive=True))]


def _shared_mib(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(process.memory_full_info().pss / MIB)
    return 0.0


def _is_python(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.name().startswith("python"))
    return False


@dataclass(slots=True, kw_only=True)
class Trial:
    """A job of stub workers under one launcher."""

    name: str
    job: Job
    stubs: StubWorkers
    slots: int
    hosts: list[str] = field(default_factory=list)
    """Offered now."""
    made: int = 0

    def offer(self, count: int) -> None:
        """Offer so many hosts: the oldest, and new ones for those that are missing."""
        new = [f"127.{1 + n // 250}.1.{1 + n % 250}" for n in range(self.made, self.made + count - len(self.hosts))]
        for host in new:
            self.stubs.expect(host, self.slots)
        self.made += len(new)
        self.hosts = [*self.hosts[:count], *new]
        if self.name == LAUNCH:
            self.job.hosts(*(f"{host}:{self.slots}" for host in self.hosts))
            return
        fresh = self.job.folder / ".list"
        fresh.write_text("".join(f"{host}:{self.slots}\n" for host in self.hosts))
        fresh.rename(self.job.folder / "list")

    def start(self) -> None:
        """Start the launcher, which waits for all slots."""
        size = str(len(self.hosts) * self.slots)
        flags = ("-np", size, "--min-np", "1", "--max-np", size, "--start-timeout", f"{SECONDS:.0f}")
        if self.name == LAUNCH:
            self.job.launch(*flags, command=self.stubs.command)
            return
        script = self.job.folder / "discover"
        script.write_text(f"#!/bin/sh\nexec cat {self.job.folder}/list\n")
        script.chmod(0o755)
        self.job.put_ssh_here()
        self.job.horovodrun(*flags, discovery=str(script), command=self.stubs.command)

    def until_whole(self, since: float) -> None:
        """Wait until all processes are in a world of all. Raises AssertionError."""
        size = len(self.hosts) * self.slots

        def whole() -> bool:
            time.sleep(0.05)
            assert not self.stubs.failures, self.stubs.failures[0]
            assert GIVEN_UP not in self.job.said(), f"these stubs are too slow here: a worker {GIVEN_UP}"
            return self.stubs.in_world(size, since) == size

        self.job.until(whole, f"a world of {size}", SECONDS)


def measured(name: str, size: int, slots: int, *, all_lookups: bool) -> Scale:
    """Take one launcher through all phases. `all_lookups`: make all of Gloo's look-ups, too."""
    found = Scale()
    with trial(name, slots) as made:
        try:
            run_phases(made, size, found, all_lookups=all_lookups)
        except AssertionError as error:
            found.failure = str(error).splitlines()[0]
    print(f"{time.strftime('%H:%M:%S')} {name} at {size}: {found.failure or 'done'}", flush=True)
    return found


@contextlib.contextmanager
def trial(name: str, slots: int) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        fifos = Path(folder) / "stubs"
        fifos.mkdir()
        stubs = StubWorkers(fifos, has_barrier=name == LAUNCH)
        stack.callback(stubs.close)
        yield Trial(name=name, job=stack.enter_context(make_job(Path(folder))), stubs=stubs, slots=slots)


def run_phases(made: Trial, size: int, found: Scale, *, all_lookups: bool) -> None:
    whole = size // made.slots
    made.offer(whole)
    processes: LauncherProcesses | None = None
    for phase, hosts in zip(PHASES, (whole, whole - 1, whole // 2, whole), strict=True):
        before = processes.cpu() if processes else 0.0
        made.stubs.moments, made.stubs.pings = [], 0
        notices, began = len(made.stubs.notices), time.time()
        if processes is None:
            made.start()
            assert made.job.process is not None
            processes = LauncherProcesses(made.job.process.pid)
        else:
            made.offer(hosts)
        made.until_whole(began)
        seconds = time.time() - began
        share = None if phase == PHASES[0] else launchers_share(made.stubs.moments)
        cpu, pings = processes.cpu() - before, made.stubs.pings
        found.phases[phase] = Phase(cpu=cpu, seconds=seconds, share=share, pings=pings)
        found.notice_seconds += [notice - began for notice in made.stubs.notices[notices : notices + 1]]
        print(f"{time.strftime('%H:%M:%S')} {made.name} at {size}: {phase}: {found.phases[phase]}", flush=True)
        if phase == PHASES[0]:
            found.mib = processes.mib()
            found.lookups = measured_lookups(made, processes, size, every=all_lookups)


def launchers_share(moments: Sequence[Moment]) -> float:
    """How long all workers waited for the launcher."""
    last = {what: max(each.time for each in moments if each.what == what) for what in {each.what for each in moments}}
    barrier = last["released"] - last["joins"] if "released" in last else 0.0
    return last["told"] - last["asks"] + barrier


def measured_lookups(made: Trial, processes: LauncherProcesses, size: int, *, every: bool) -> Lookups:
    """The CPU of single look-ups, and of all of one world if `every`. Keys like Gloo's, in the scope of the world."""
    ask = partial(made.stubs.request, made.stubs.any_member())
    answers = {"short": b"job-worker-0", "whole": bytes(ADDRESS_BYTES * (size - 1))}
    costs = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for kind, answer in answers.items():
            path = f"/global/{kind}"
            ask("PUT", path, answer)
            before = processes.cpu()
            list(pool.map(ask, ["GET"] * LOOKUPS, [path] * LOOKUPS))
            costs[kind] = (processes.cpu() - before) / LOOKUPS
    found = Lookups(**costs)
    if every:
        before = processes.cpu()
        look_up_all(ask, size, answers["whole"])
        found.all_seconds = processes.cpu() - before
    return found


def look_up_all(ask: Callable[..., bytes], size: int, addresses: bytes) -> None:
    """What `connectFullMesh` asks of the store. Some processes at a time: all at once would not take more CPU."""
    for rank in range(size):
        ask("PUT", f"/global/name_{rank}", b"job-worker-0")
        ask("PUT", f"/global/at_{rank}", addresses)

    def connect(rank: int) -> None:
        for other in range(rank):
            ask("GET", f"/global/name_{other}")
        for other in range(size):
            if other != rank:
                ask("GET", f"/global/at_{other}")  # Store::wait
                ask("GET", f"/global/at_{other}")  # Store::get

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(connect, range(size)))


# --- The tables ------------------------------------------------------------------------------------------------------

Found = dict[tuple[str, int], Scale]


def cells(found: Found, size: int, figure: Callable[[Scale, str], float | None]) -> list[Value]:
    """A figure of each phase, under each launcher."""
    return [
        figure(scale, phase) if (scale := found.get((name, size))) and phase in scale.phases else None
        for phase in PHASES
        for name in (LAUNCH, STOCK)
    ]


def cpu_of(scale: Scale, phase: str) -> float:
    return scale.phases[phase].cpu


def memory(found: Found, size: int) -> list[float | None]:
    return [scale.mib if (scale := found.get((name, size))) else None for name in (LAUNCH, STOCK)]


def phase_columns(format: str) -> tuple[Column, ...]:  # noqa: A002  as of a column
    return tuple(Column(title=f"{phase}: {name}", format=format) for phase in PHASES for name in (LAUNCH, STOCK))


def cost_table(found: Found, sizes: Sequence[int]) -> Table:
    failures = [f"{name} at {size}: {scale.failure}." for (name, size), scale in found.items() if scale.failure]
    return Table(
        name="launcher-scale-cost",
        title="CPU seconds of the launcher until all workers train, and its memory in MiB at full size",
        columns=(
            Column(title="workers", format="d"),
            *phase_columns(".2f"),
            *(Column(title=f"MiB: {name}", format=".0f") for name in (LAUNCH, STOCK)),
        ),
        rows=[[size, *cells(found, size, cpu_of), *memory(found, size)] for size in sizes],
        note=" ".join(["Without Gloo's look-ups and without ssh.", *failures]),
    )


def time_table(found: Found, sizes: Sequence[int]) -> Table:
    rows: list[list[Value]] = []
    for size in sizes:
        clocks = cells(found, size, lambda scale, phase: scale.phases[phase].seconds)
        shares = cells(found, size, lambda scale, phase: scale.phases[phase].share)
        notices = [found[name, size].notice_seconds if (name, size) in found else [] for name in (LAUNCH, STOCK)]
        pings = cells(found, size, lambda scale, phase: scale.phases[phase].pings)[2::2]
        rows.append(
            [size, *clocks, *shares[2:], *pings, *(statistics.median(each) if each else None for each in notices)]
        )
    shares_columns = [
        Column(title=f"launcher's share, {column.title}", format=".2f") for column in phase_columns(".2f")[2:]
    ]
    return Table(
        name="launcher-scale-times",
        title="Seconds by the clock until all workers train, and how long all of them wait for the launcher meanwhile",
        columns=(
            Column(title="workers", format="d"),
            *phase_columns(".2f"),
            *shares_columns,
            *(Column(title=f"pings, {phase}: {LAUNCH}", format="d") for phase in PHASES[1:]),
            *(Column(title=f"list to notification: {name}", format=".3f") for name in (LAUNCH, STOCK)),
        ),
        rows=rows,
        note="The stub workers take most of these cores: compare launchers, not sizes. `launch` pings each second "
        "those for which the others wait, so its CPU grows with the time that slow stubs take to ask.",
    )


def gloo_table(found: Found, sizes: Sequence[int]) -> Table:
    rows: list[list[Value]] = []
    for size in sizes:
        pairs = size * (size - 1)
        answer = ADDRESS_BYTES * (size - 1)
        row: list[Value] = [size, 5 * pairs // 2, 2 * pairs * answer / 2**30, size * answer / MIB]
        for name in (LAUNCH, STOCK):
            scale = found.get((name, size))
            row += lookup_cells(scale.lookups if scale else None, pairs)
        rows.append(row)
    kinds = (("us of a look-up", ".0f"), ("CPU s, predicted", ".1f"), ("CPU s, measured", ".1f"))
    return Table(
        name="launcher-scale-gloo",
        title="What Gloo asks of either launcher to form one world, in its scope `global`",
        columns=(
            Column(title="workers", format="d"),
            Column(title="look-ups", format=","),
            Column(title="GiB sent", format=".2f"),
            Column(title="MiB kept", format=".0f"),
            *(Column(title=f"{what}: {name}", format=digits) for name in (LAUNCH, STOCK) for what, digits in kinds),
        ),
        rows=rows,
        note="Counted from Gloo's code; predicted from what single look-ups with such answers cost.",
    )


def lookup_cells(costs: Lookups | None, pairs: int) -> list[Value]:
    if costs is None:
        return [None, None, None]
    return [1e6 * costs.whole, pairs / 2 * costs.short + 2 * pairs * costs.whole, costs.all_seconds]


def picture(found: Found, sizes: Sequence[int]) -> str:
    lines = []
    for name in (LAUNCH, STOCK):
        for phase in (PHASES[0], PHASES[2]):
            scales = [(size, found[name, size].phases.get(phase)) for size in sizes if (name, size) in found]
            points = [(float(size), seen.cpu) for size, seen in scales if seen and seen.cpu > 0]
            lines += [Line(name=f"{name}: {phase}", points=points)] if points else []
    values = [value for line in lines for _, value in line.points]
    return line_chart(
        lines,
        title="CPU of the launcher by the number of workers",
        x=Axis(title="workers", ticks=[(float(size), str(size)) for size in sizes], is_logarithmic=True),
        y=Axis(title="CPU seconds", ticks=[(tick, f"{tick:g}") for tick in decades(values)], is_logarithmic=True),
    )


if __name__ == "__main__":
    main()
