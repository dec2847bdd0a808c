"""Stub workers for benchmarks/launcher_scale.py: thousands of processes that a launcher starts, on one machine.

The launcher starts a shell for each, which takes some hundred KiB, says that it is there, and waits to be told with
which code to end. What a worker asks the launcher is asked by a thread of this process, over HTTP, in a worker's order:
the barrier (not of horovodrun, which has none), Gloo's first key, the registration of the notification service,
`synced`, and another place after a notification. Gloo's look-ups are left out. The notification service is Horovod's
own; all stubs share one. A notification reaches all of them at once, as with the next commit of a job.
"""

import http.client
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Final

from horovod.runner.common.util import secret
from horovod.runner.common.util.network import PingRequest
from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES, dumps_worker_addresses
from horovod.runner.elastic.worker import WorkerNotificationService

from hvd_elastic.mpijob.contract import JOIN_SCOPE, RENDEZVOUS_TOKEN_HEADER, SYNCED_SCOPE, Exit, JoinAnswer

ATTEMPTS, PAUSE_SECONDS = 3, 0.5
"""As in Horovod's http_store.h."""

BACKLOG = 4096
"""Of the notification service. A launcher pings all workers that it waits for. Here all pings come to one server, and
with Horovod's backlog of 5 the stubs' hosts would seem to be lost."""

SCRIPT: Final = """\
#!/bin/sh
echo "$HOROVOD_HOSTNAME $HOROVOD_LOCAL_RANK $HOROVOD_RANK $HOROVOD_SIZE" \\
    "$HOROVOD_GLOO_RENDEZVOUS_ADDR $HOROVOD_GLOO_RENDEZVOUS_PORT ${{HOROVOD_RENDEZVOUS_TOKEN:--}}" > {folder}/started
read -r code < "{folder}/$HOROVOD_HOSTNAME:$HOROVOD_LOCAL_RANK"
exit "$code"
"""


class LauncherGoneError(Exception):
    """It does not answer."""


@dataclass(slots=True, kw_only=True)
class StubWorker:
    """One of them."""

    key: str
    """HOST:LOCAL_RANK."""
    rank: int
    size: int
    server: str
    token: str
    joined: float | None = None
    """When it came to its present world, in seconds since the epoch; None while it has none."""
    seen: int = 0
    """Notifications that came before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a worker asked or was answered."""

    what: str
    time: float


class _NotificationService(WorkerNotificationService):  # type: ignore[misc]
    """Horovod's, which also counts the pings."""

    def _handle(self, request: object, client_address: object) -> object:
        self._manager.pings += isinstance(request, PingRequest)
        return super()._handle(request, client_address)


class StubWorkers:
    """All stubs of one launcher. `close` ends those that its launcher has not."""

    def __init__(self, folder: Path, *, has_barrier: bool) -> None:
        """`has_barrier`: whether the launcher is this project's."""
        self.notices: list[float] = []
        """When notifications came, in seconds since the epoch."""
        self.pings = 0
        """That the launcher has sent to any of them."""
        self.moments: list[Moment] = []
        self.failures: list[str] = []
        self._folder, self._has_barrier = folder, has_barrier
        self._workers: list[StubWorker] = []
        self._change = threading.Condition()
        self._closing = False
        self._secret = secret.make_secret_key()
        ThreadingTCPServer.request_queue_size = BACKLOG
        self._service = _NotificationService(self._secret, "lo", self)
        script = folder / "stub"
        script.write_text(SCRIPT.format(folder=folder))
        self.command = ("/bin/sh", str(script))
        os.mkfifo(folder / "started")
        self._started = os.fdopen(os.open(folder / "started", os.O_RDWR), "r")
        threading.Thread(target=self._read, daemon=True).start()

    def expect(self, host: str, slots: int) -> None:
        """Make ready for the processes of a host that is about to be offered."""
        for slot in range(slots):
            os.mkfifo(self._folder / f"{host}:{slot}")

    def in_world(self, size: int, since: float) -> int:
        """How many have come to a world of that size since then."""
        workers = tuple(self._workers)
        return sum(each.joined is not None and each.joined > since and each.size == size for each in workers)

    def any_member(self) -> StubWorker:
        """One that is in a world."""
        return next(worker for worker in self._workers if worker.joined)

    def handle_hosts_updated(self, *_: object) -> None:
        """Called by Horovod's service."""
        with self._change:
            self.notices.append(time.time())
            self._change.notify_all()

    def close(self) -> None:
        """End all. The launcher must have ended."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        for worker in self._workers:
            with suppress(OSError):  # of one that has ended nobody reads
                self._tell(worker, 0, os.O_NONBLOCK)
        self._service.shutdown()

    def _read(self) -> None:
        for line in self._started:
            host, local_rank, rank, size, address, port, token = line.split()
            worker = StubWorker(
                key=f"{host}:{local_rank}", rank=int(rank), size=int(size), server=f"{address}:{port}", token=token
            )
            self._workers.append(worker)
            threading.Thread(target=self._run, args=(worker,), daemon=True).start()

    def _run(self, worker: StubWorker) -> None:
        try:
            self._live(worker)
        except (LauncherGoneError, OSError, ValueError) as error:  # at its end a launcher answers anything
            if not self._closing:
                self.failures.append(f"{worker.key}: {error}")

    def _live(self, worker: StubWorker) -> None:
        """From its start to its end."""
        registered, placed = False, self._enter(worker, asks=False)
        while placed:
            self.request(worker, "PUT", f"/global/{worker.rank}", b"address")
            if not registered:
                registration = dumps_worker_addresses(self._service.addresses(), self._secret)
                self.request(worker, "PUT", f"/{PUT_WORKER_ADDRESSES}/{worker.key}", registration)
                if self._has_barrier:
                    self.request(worker, "GET", f"/{SYNCED_SCOPE}/{worker.key}")
                registered = True
            with self._change:
                worker.seen, worker.joined = len(self.notices), time.time()
                self._change.wait_for(lambda: len(self.notices) > worker.seen or self._closing)
            if self._closing:
                return
            worker.joined = None
            placed = self._enter(worker, asks=True)
        self._tell(worker, Exit.REMOVED, 0)

    def _enter(self, worker: StubWorker, *, asks: bool) -> bool:
        """Get a place in the next world. Returns whether there is one."""
        while True:
            if asks:
                place = self._ask(worker, "asks", "told", f"/{GET_RANK_AND_SIZE}/{worker.key}")
                worker.rank, worker.size = (int(number) for number in place.split(",")[:2])
                if worker.rank < 0:
                    return False
            if not self._has_barrier:
                return True
            answer: str = JoinAnswer.WAIT
            while answer == JoinAnswer.WAIT:
                answer = self._ask(worker, "joins", "released", f"/{JOIN_SCOPE}/{worker.key}")
            if answer == JoinAnswer.GO:
                return True
            asks = True

    def _ask(self, worker: StubWorker, before: str, after: str, path: str) -> str:
        self.moments.append(Moment(what=before, time=time.time()))
        answer = self.request(worker, "GET", path).decode()
        self.moments.append(Moment(what=after, time=time.time()))
        return answer

    def request(self, worker: StubWorker, method: str, path: str, body: bytes | None = None) -> bytes:
        """Ask the launcher as this worker. Raises LauncherGoneError."""
        headers = {} if worker.token == "-" else {RENDEZVOUS_TOKEN_HEADER: worker.token}
        why: object = ""
        for _ in range(ATTEMPTS):
            try:
                connection = http.client.HTTPConnection(worker.server, timeout=3600)
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                answer = response.read()
                if response.status == http.HTTPStatus.OK:
                    return answer
                why = response.status
            except (OSError, http.client.HTTPException) as error:
                why = repr(error)
            time.sleep(PAUSE_SECONDS)
        raise LauncherGoneError(f"{method} {path}: {why}")

    def _tell(self, worker: StubWorker, code: int, flags: int) -> None:
        """Have its process end with a code."""
        descriptor = os.open(self._folder / worker.key, os.O_WRONLY | flags)
        os.write(descriptor, f"{code}\n".encode())
        os.close(descriptor)
