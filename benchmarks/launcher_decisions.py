"""What deciding and serving cost the launcher: CPU of its two threads, for worlds of which no process is real.

    python -m benchmarks.launcher_decisions [--processes 1024 2048 4096] [--slots 8]

The world, the driver and the rendezvous server are the product's. Each process is a coroutine that asks over HTTP what
a worker asks. `first barrier`: from the first list of hosts until all processes are released into `hvd.init()`.
`meeting`: all tell where they listen, and are told where the others do.
`shrink`: one host leaves, all others ask for a place and meet again.
"""

import argparse
import asyncio
import contextlib
import resource
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE

from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import place
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.driver import Driver, WorkerCommand
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer
from hvd_elastic.launcher.remote.command_runner import LocalCommandRunner
from hvd_elastic.launcher.status_report import StatusReport
from hvd_elastic.mpijob.contract import (
    JOIN_SCOPE,
    MEETING_SCOPE,
    MEETS_HEADER,
    RENDEZVOUS_TOKEN_HEADER,
    SYNCED_SCOPE,
    JoinAnswer,
)

if TYPE_CHECKING:
    from hvd_elastic.launcher.remote.worker_output import OutputStream
    from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses

SECONDS = 600.0
TOKEN = "a word"


class NoProcesses:
    """Starts nothing."""

    def start(self, *_: object, **__: object) -> None:
        """Its process is a coroutine of the crowd."""

    def end(self, number: int, *, at_once: bool) -> None:
        """It has no end of its own."""


class Crowd:
    """A driver, its server, and a coroutine for each process."""

    def __init__(self, hosts: int, slots: int, folder: Path) -> None:
        self.hosts = tuple(
            Host(alias=f"u{n}-1", address=f"10.0.{n // 250}.{n % 250}", slots=slots, pod=f"p{n}") for n in range(hosts)
        )
        self.meeting = ""
        """What the launcher calls the world."""
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
        self.server = RendezvousServer("127.0.0.1", self.driver, token=TOKEN)
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

    def cpu(self) -> tuple[float, float]:
        """CPU seconds so far: of the thread that decides, and of the one that serves."""
        serving = next(each for each in threading.enumerate() if each.name == "rendezvous")
        decides, serves = (
            time.clock_gettime(time.pthread_getcpuclockid(each.ident)) for each in (self.thread, serving) if each.ident
        )
        return decides, serves

    def all_do(self, hosts: Sequence[Host], what: Callable[[str], Coroutine[None, None, object]]) -> None:
        """Have each process on the hosts do something at once, and wait for all."""
        keys = [f"{host.alias}:{local_rank}" for host in hosts for local_rank in range(host.slots)]

        async def together() -> None:
            await asyncio.gather(*map(what, keys))

        asyncio.run(together())

    async def ask(self, scope: str, key: str) -> str:
        """What the server answers."""
        return (await self.send(f"GET /{scope}/{key}")).decode()

    async def send(self, what: str, body: bytes = b"") -> bytes:
        """Send a request, and return the answer's body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        head = (f"{what} HTTP/1.0", f"{RENDEZVOUS_TOKEN_HEADER}: {TOKEN}", f"{MEETS_HEADER}: 1")
        writer.write("\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body)
        answer = await reader.read()
        writer.close()
        status, _, found = answer.partition(b"\r\n\r\n")
        assert b" 200 " in status, status
        return found

    async def arrive(self, key: str) -> None:
        """What `hvd.init()` does of a worker of this project, up to its release."""
        while not (answer := await self.ask(JOIN_SCOPE, key)).startswith(JoinAnswer.GO):
            if answer == JoinAnswer.AGAIN:
                await self.ask(GET_RANK_AND_SIZE, key)
        self.meeting = answer.removeprefix(JoinAnswer.GO).strip()

    async def reset(self, key: str) -> None:
        """Ask for a place in the next world, and arrive there if there is one."""
        if not (await self.ask(GET_RANK_AND_SIZE, key)).startswith("-1"):
            await self.arrive(key)

    def first_barrier(self) -> None:
        """All processes start and meet."""
        self.driver.hosts_seen(self.hosts)
        self.all_do(self.hosts, self.arrive)

    def meet(self) -> None:
        """All processes meet, as `gloo_meeting.cc` has them do it."""
        messages: dict[str, bytes] = {}
        for slot in place(self.hosts, None):
            message = struct.pack("!4sBBBB6I14x", b"HVDM", 2, 14, 0, 0, *slot.places)
            messages[f"{slot.host.alias}:{slot.local_rank}"] = message
        self.all_do(self.hosts, lambda key: self.send(f"PUT /{MEETING_SCOPE}/{self.meeting}", messages[key]))

    def sync(self) -> None:
        """All processes say that they have the state. None registers: none could be notified here."""
        self.all_do(self.hosts, lambda key: self.ask(SYNCED_SCOPE, key))
        known = threading.Event()
        self.driver.request_place(("nobody", 0), lambda _: known.set())  # answered when all of it is known
        known.wait()

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
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # both ends of all connections are in this process
    rows: list[list[Value]] = []
    for processes in flags.processes:
        with tempfile.TemporaryDirectory() as folder:
            crowd = Crowd(processes // flags.slots, flags.slots, Path(folder))
            with crowd.driving():
                parts: list[Value] = []
                for part in (crowd.first_barrier, crowd.meet, crowd.sync, crowd.shrink):
                    before = crowd.cpu()
                    part()
                    parts += (end - begin for begin, end in zip(before, crowd.cpu(), strict=True))
        rows.append([processes, *parts])
    columns = (
        Column(title="processes", format="d"),
        *(
            Column(title=f"{part}: {work}", format=".2f")
            for part in ("first barrier", "meeting", "sync", "shrink by a host")
            for work in ("deciding", "serving")
        ),
    )
    title = "CPU seconds of the launcher"
    record.add(Table(name="launcher-decisions", title=title, columns=columns, rows=rows))
    record.write()


if __name__ == "__main__":
    main()
