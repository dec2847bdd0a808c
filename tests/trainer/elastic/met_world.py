"""Real processes in worlds that this project's rendezvous server forms, with its barrier and no launcher beside it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from horovod.runner.gloo_run import create_run_env_vars

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import REMOVED_RESPONSE, SlotKey, place
from hvd_elastic.launcher.protocol import rendezvous_server
from hvd_elastic.launcher.protocol.horovod_messages import Registration
from hvd_elastic.launcher.protocol.http_requests import RequestHead, read_head
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer, Reply
from hvd_elastic.mpijob.contract import ENV_RENDEZVOUS_TOKEN
from testbed.local import forkserver

WORKER = Path(__file__).with_name("met_worker.py")
ROOT = WORKER.parents[3]
GLOO_TIMEOUT_SECONDS = 600
"""What waits for Gloo's time-out takes longer than a test waits for its end."""


@dataclass
class Barrier:
    """Lets the members of a world pass once all of them are there. Nobody gets a place in another world."""

    size: int
    waiting: list[Reply] = field(default_factory=list)

    def request_place(self, _key: SlotKey, reply: Reply) -> None:
        reply(REMOVED_RESPONSE)

    def wait_at_barrier(self, _key: SlotKey, reply: Reply) -> None:
        self.waiting.append(reply)
        if len(self.waiting) == self.size:
            for each in self.waiting:
                each("go")
            self.waiting.clear()

    def initialising(self, _rank: int, reply: Reply) -> None:
        reply("")

    def synced(self, key: SlotKey) -> None: ...
    def ask_for_writer(self, key: SlotKey, reply: Reply) -> None: ...
    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None: ...


@dataclass
class MetWorld:
    """The processes by rank, and what they have asked the server."""

    server: RendezvousServer
    processes: list[subprocess.Popen[str]]
    asked: list[str]
    """Method and scope of each request, such as `PUT meet`."""


@contextmanager
def met_world(
    case: str,
    hosts: Sequence[int],
    *,
    gloo_timeout_seconds: int = GLOO_TIMEOUT_SECONDS,
    forked: bool = True,
    server_at: str = "127.0.0.1",
) -> Iterator[MetWorld]:
    """Start the processes of `met_worker.py CASE` on so many hosts with so many slots each.

    `forked`: by the fork server, which is faster. One of them lives on for a moment when its client is killed.
    """
    python = forkserver.python() if forked else [sys.executable]
    slots = place([Host(alias=f"h{n}", address="127.0.0.1", slots=each) for n, each in enumerate(hosts)], None)
    asked: list[str] = []

    async def noted(*arguments: object) -> RequestHead:
        head = await read_head(*arguments)  # type: ignore[arg-type]
        asked.append(f"{head.method} {head.path.split('/')[1]}")
        return head

    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(rendezvous_server, "read_head", noted)
        server = RendezvousServer(server_at, Barrier(len(slots)), token="a word")
        server.start()
        stack.callback(server.stop)
        server.form(slots)
        url_host = f"[{server_at}]" if ":" in server_at else server_at
        base = {
            **os.environ,
            **{name: str(value) for name, value in create_run_env_vars(url_host, ["lo"], server.port).items()},
            "HOROVOD_ELASTIC": "1",
            "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(gloo_timeout_seconds),
            ENV_RENDEZVOUS_TOKEN: "a word",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        processes = [
            subprocess.Popen(
                [*python, str(WORKER), case],
                env={**base, **slot.environment()},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for slot in slots
        ]
        for process in processes:
            stack.callback(process.communicate)
            stack.callback(process.kill)
        yield MetWorld(server, processes, asked)
