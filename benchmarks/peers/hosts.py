"""Places on this machine that training may use, taken and given back as Kubernetes takes pods.

A taken host gets what the kubelet gives to a pod: SIGTERM to its first process, and SIGKILL to all of them when that
has ended or the grace is over. The same holds for all systems.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self

import psutil

from hvd_elastic.system.child_processes import die_with_parent

ROOT: Final = Path(__file__).parents[2]
SCRIPTS: Final = ROOT / "testbed" / "cluster" / "scripts"
GRACE_SECONDS: Final = 30.0
"""`terminationGracePeriodSeconds` of a pod that says nothing else."""
_MARK: Final = "BENCHMARK_HOST"
"""Environment variable of all processes of a host: some leave its process group, and their parents end."""


class HostCommand(Protocol):
    """What runs on a host."""

    def __call__(self, place: int) -> tuple[Sequence[str], Mapping[str, str]]:
        """Command and environment of the host's first process."""


@dataclass(slots=True, kw_only=True)
class Host:
    """One start of a place."""

    process: subprocess.Popen[bytes]
    mark: str
    taken: float | None = None
    """When it got SIGTERM."""

    @classmethod
    def start(cls, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Self:
        """Start the first process; its output goes to the end of `log`."""
        mark = uuid.uuid4().hex
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env={**environment, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl(2), and no thread here holds a lock
            )
        return cls(process=process, mark=mark)

    def take(self, now: float) -> None:
        """Begin to end it."""
        self.taken = now
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)

    def end(self) -> None:
        """Kill all of it, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        while not self.gone(0.0):
            time.sleep(0.01)

    def gone(self, now: float) -> bool:
        """Whether nothing of it is left; kills what must not be there any more."""
        ended = self.process.poll() is not None
        if ended or (self.taken is not None and now - self.taken > GRACE_SECONDS):
            return not self.kill() and ended
        return False

    def kill(self) -> int:
        """SIGKILL all of it; returns how many processes that were."""
        left = list(_processes(self.mark))
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(left)


@dataclass(slots=True, kw_only=True)
class Hosts:
    """All places. The last ones are taken first; the first one always stays."""

    command: HostCommand
    size: int
    folder: Path
    """For what the hosts print."""
    wanted: int = 0
    hosts: dict[int, Host] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Places on which there still is a process."""
        return len(self.hosts)

    def want(self, count: int) -> None:
        """Set how many places training may use."""
        self.wanted = count

    def kill(self) -> None:
        """Kill the last host that is there."""
        self.hosts[max(self.hosts)].kill()

    def tend(self, now: float) -> None:
        """Take, remove and start hosts, as it is wanted. One that ended by itself is started anew, as a pod is."""
        for place in range(self.size):
            host = self.hosts.get(place)
            if host and place >= self.wanted and host.taken is None:
                host.take(now)
            if host and host.gone(now):
                del self.hosts[place]
            elif host is None and place < self.wanted:
                argv, environment = self.command(place)
                self.hosts[place] = Host.start(argv, environment, self.folder / f"host-{place}.log")


@contextmanager
def hosts(command: HostCommand, size: int, folder: Path) -> Iterator[Hosts]:
    """So many places, all of which are wanted; everything on them ends with the context."""
    found = Hosts(command=command, size=size, folder=folder, wanted=size)
    found.tend(time.monotonic())
    try:
        yield found
    finally:
        for host in found.hosts.values():
            host.end()


@contextmanager
def beside(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Host]:
    """A process that no platform takes: it ends with the context, with all that it started."""
    host = Host.start(command, environment, log)
    try:
        yield host
    finally:
        host.end()


def script_environment() -> dict[str, str]:
    """Of all processes: what is imported is this checkout's. One thread each, for they share this machine's cores."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{SCRIPTS}", "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    """One on which nobody listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _processes(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == mark:
                yield process
