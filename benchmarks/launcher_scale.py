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
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks._stub_workers import Moment, StubWorkers
from benchmarks.report.growth import growth
from benchmarks.report.record import Record
from benchmarks.scaling.launcher_processes import LauncherProcesses
from benchmarks.scaling.scale_figures import ADDRESS_BYTES, LAUNCH, PHASES, STOCK, Lookups, Phase, Scale
from benchmarks.scaling.scale_tables import cost_table, gloo_table, growth_aims, picture, time_table
from testbed.local.harness import Job
from testbed.local.harness import job as make_job

LOOKUPS: Final = 400
"""Of each kind, to see what one costs."""
AT_A_TIME: Final = 4
"""Look-ups. horovodrun lets five connections wait: one more would be tried again a second later."""
SECONDS: Final = 1800.0
"""A deadline for each phase."""
GIVEN_UP: Final = re.compile(r"(\S+)\[\d+\] is written off.*")
"""What `launch` says of a worker that it waits for no longer. The others go on, in a smaller world."""


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
        record.promise(*growth_aims(costs))
        record.pictures["cpu"] = picture(found, sizes)
    record.add(time_table(found, sizes))
    record.add(gloo_table(found, sizes))
    record.write()


# --- One launcher at one size ----------------------------------------------------------------------------------------


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
        offer = self.job.hosts if self.name == LAUNCH else self.job.list_hosts
        offer(*(f"{host}:{self.slots}" for host in self.hosts))

    def start(self) -> None:
        """Start the launcher, which waits for all slots."""
        size = str(len(self.hosts) * self.slots)
        flags = ("-np", size, "--min-np", "1", "--max-np", size, "--start-timeout", f"{SECONDS:.0f}")
        if self.name == LAUNCH:
            self.job.launch(*flags, command=self.stubs.command)
            return
        self.job.put_ssh_here()
        self.job.horovodrun(*flags, discovery=self.job.listing_script(), command=self.stubs.command)

    def until_whole(self, since: float) -> None:
        """Wait until all processes are in a world of all. Raises AssertionError."""
        size = len(self.hosts) * self.slots

        def whole() -> bool:
            time.sleep(0.05)
            assert not self.stubs.failures, self.stubs.failures[0]
            given_up = [each[0] for each in GIVEN_UP.finditer(self.job.said()) if each[1] in self.hosts]
            assert not given_up, f"these stubs are too slow here: {given_up[0]}"
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


if __name__ == "__main__":
    main()
