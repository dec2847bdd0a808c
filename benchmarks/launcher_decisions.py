"""What deciding costs the launcher: CPU of the driver's thread, for worlds of which no process is real.

    python -m benchmarks.launcher_decisions [--processes 1024 2048 4096] [--slots 8]

The world, the driver and the rendezvous store are the product's. Each process is a thread that asks what a worker
asks. `first barrier`: from the first list of hosts until all processes are released into `hvd.init()`. `shrink`: one
host leaves, all others ask for a place and meet again. HTTP is left out: it costs each request the same in a thread of
its own.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import SlotKey
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.driver import Driver, WorkerCommand
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer
from hvd_elastic.launcher.remote.command_runner import LocalCommandRunner
from hvd_elastic.launcher.status_report import StatusReport
from hvd_elastic.mpijob.contract import JoinAnswer

if TYPE_CHECKING:
    from hvd_elastic.launcher.remote.worker_output import OutputStream
    from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses

SECONDS = 600.0


class NoProcesses:
    """Starts nothing."""

    def start(self, *_: object, **__: object) -> None:
        """Its process is a thread of the crowd."""

    def end(self, number: int, *, at_once: bool) -> None:
        """It has no end of its own."""


class Crowd:
    """A driver, and a thread for each process."""

    def __init__(self, hosts: int, slots: int, folder: Path) -> None:
        self.hosts = tuple(
            Host(alias=f"u{n}-1", address=f"10.0.{n // 250}.{n % 250}", slots=slots, pod=f"p{n}") for n in range(hosts)
        )
        size = hosts * slots
        limits = WorldLimits(
            start=size, minimum=1, maximum=None, elastic_timeout=SECONDS, reset_limit=None, restart_errors=False,
            settle=0.0, hang_timeout=SECONDS, removed_patience=SECONDS, start_timeout=SECONDS,
            first_start_timeout=SECONDS, entry_patience=SECONDS, silence=SECONDS,
        )  # fmt: skip
        streams = cast("tuple[OutputStream, OutputStream]", ())
        self.driver = Driver(
            limits,
            cooldown=None,
            runner=LocalCommandRunner(),
            workers=cast("WorkerProcesses", NoProcesses()),
            command=WorkerCommand(argv=(), environment=lambda _: {}, streams=lambda *_: streams),
            report=StatusReport(folder),
        )
        self.server = RendezvousServer("127.0.0.1", self.driver, token="")
        self.thread = threading.Thread(target=self.driver.run, args=(self.server,), daemon=True)

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Have the driver run."""
        self.server.start()
        self.thread.start()
        yield
        self.driver.stop(0, "measured")
        self.thread.join()
        self.server.stop()

    def cpu(self) -> float:
        """CPU seconds of the driver's thread so far."""
        assert self.thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))

    def keys(self, hosts: Sequence[Host]) -> list[SlotKey]:
        """The processes on the hosts."""
        return [(host.alias, local_rank) for host in hosts for local_rank in range(host.slots)]

    def all_do(self, hosts: Sequence[Host], what: Callable[[SlotKey], None]) -> None:
        """Have each process do something in a thread of its own, and wait for all."""
        threads = [threading.Thread(target=what, args=(key,)) for key in self.keys(hosts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def arrive(self, key: SlotKey) -> None:
        """What `hvd.init()` does of a worker of this project, up to its release."""
        while (answer := self.driver.wait_at_barrier(key)) != JoinAnswer.GO:
            if answer == JoinAnswer.AGAIN:
                self.driver.request_place(key)

    def reset(self, key: SlotKey) -> None:
        """Ask for a place in the next world, and arrive there if there is one."""
        place = self.driver.request_place(key)
        if place and not place.startswith("-1"):
            self.arrive(key)

    def first_barrier(self) -> None:
        """All processes start and meet."""
        self.driver.hosts_seen(self.hosts)
        self.all_do(self.hosts, self.arrive)

    def sync(self) -> None:
        """All processes say that they have the state. None registers: none could be notified here."""
        for key in self.keys(self.hosts):
            self.driver.synced(key)
        self.driver.request_place(("nobody", 0))  # answered when all of it is known

    def shrink(self) -> None:
        """The last host leaves."""
        self.driver.hosts_seen(self.hosts[:-1])
        self.all_do(self.hosts, self.reset)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--slots", type=int, default=8, help="processes of a host")
    flags = parser.parse_args()
    record = Record(name="launcher_decisions", question="What does deciding cost the launcher at many processes?")
    threading.stack_size(256 << 10)
    rows: list[list[Value]] = []
    for processes in flags.processes:
        with tempfile.TemporaryDirectory() as folder:
            crowd = Crowd(processes // flags.slots, flags.slots, Path(folder))
            with crowd.driving():
                parts: list[Value] = []
                for part in (crowd.first_barrier, crowd.sync, crowd.shrink):
                    before = crowd.cpu()
                    part()
                    parts.append(crowd.cpu() - before)
        rows.append([processes, *parts])
    columns = (
        Column(title="processes", format="d"),
        *(Column(title=title, format=".2f") for title in ("first barrier", "sync", "shrink by a host")),
    )
    title = "CPU seconds of the driver"
    record.add(Table(name="launcher-decisions", title=title, columns=columns, rows=rows))
    record.write()


if __name__ == "__main__":
    main()
