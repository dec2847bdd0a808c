"""The local hosts of one job, and the loop that is their kubelet, scheduler and discovery.

Each round takes the wanted number of hosts and makes it so. It shows the hosts as pods (`PodView`), with the answers of
their ready ports, to the eligibility rules, as in a cluster, and writes the snapshot if it has changed.
"""

import logging
import random
import shutil
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hvd_elastic.discovery import (
    EligibilityRules,
    Host,
    Snapshot,
    WorkerView,
    eligible_hosts,
    uptime_seconds,
    write_script,
    write_snapshot,
)
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.local.launcher_commands import link_address
from hvd_elastic.local.local_host import LocalHost
from hvd_elastic.mpijob.contract import READY_PORT, HvdElasticError, SnapshotState
from hvd_elastic.system.atomic_file import WriteFaults, replace_file
from hvd_elastic.system.background_threads import keep_running, start_thread

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 0.05
"""Between two rounds. A cluster's watch reports a change within milliseconds; here looking is cheap."""

REWRITE_SECONDS: Final = 1.0
"""After this time an unchanged snapshot is written again, so that it never looks stale."""

PROBE_SECONDS: Final = 0.1
"""Between two connections to a host's ready port. They also replace the watch, which would report that a pod is Ready.
"""

_ROOM: Final = "room"
_ROOM_BYTES: Final = 1 << 16
"""More than a host writes as it starts."""


class NoLoopbackError(HvdElasticError):
    """There is no free range of loopback addresses: this is not Linux, or 127.0.0.0/8 is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackNetwork:
    """Addresses of this machine alone, one for each host."""

    octets: str
    """The first three."""
    ready_port: int
    """READY_PORT, unless a program listens there on all addresses."""


def free_network() -> LoopbackNetwork:
    """Loopback addresses on which no other job on this machine listens.

    Raises NoLoopbackError where the machine has only 127.0.0.1, or its loopback interface is down.
    """
    reason = ""
    for port in (*[READY_PORT] * 20, 0):
        octets = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"  # noqa: S311 - any free one will do
        with closing(socket.socket()) as listener:
            try:
                listener.bind((f"{octets}.1", port))
                listener.listen(1)
                # An address of an interface that is down can be bound all the same.
                socket.create_connection(listener.getsockname(), timeout=5).close()
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            return LoopbackNetwork(octets=octets, ready_port=listener.getsockname()[1])
    raise NoLoopbackError(
        f"no loopback address can be used ({reason}): local hosts need Linux, and its interface lo (ip link set lo up)"
    )


@dataclass(slots=True, kw_only=True)
class LocalCluster:
    """Starts and stops hosts until there are as many as wanted. Run `serve` in a thread; `stop` ends it."""

    folder: Path
    """Holds the snapshot, the script and one folder per host. The caller removes it."""
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str | None = None
    """Where the command starts; None: where this process is."""
    rules: EligibilityRules
    names: Sequence[str]
    """The names of all hosts that may exist. The last ones are preempted first."""
    network: LoopbackNetwork = field(default_factory=free_network)
    wanted: int = 0
    hosts: dict[str, LocalHost] = field(default_factory=dict)
    offered: tuple[Host, ...] = ()
    _generation: int = 0
    _written: float = 0.0
    _answers: dict[str, WorkerView] = field(default_factory=dict)
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _prober: Prober = field(init=False)
    _faults: WriteFaults = field(init=False)

    def __post_init__(self) -> None:
        self._faults = WriteFaults(str(self.folder), log)
        self._prober = Prober(self._probed, port=self.network.ready_port, interval_seconds=PROBE_SECONDS)

    @property
    def inference(self) -> int:
        """The number of hosts without training, on which inference can run."""
        return len(self.names) - len(self.hosts)

    def want(self, hosts: int) -> None:
        """Set the number of hosts from now on. Surplus hosts are preempted, the last one first."""
        self.wanted = max(0, min(hosts, len(self.names)))
        self._wake.set()

    def serve(self) -> None:
        """Run rounds until `stop`, then kill every host's processes."""
        probing = start_thread("ready ports", self._prober.run, log=log)
        try:
            keep_running("local hosts", self._rounds, log=log)
        finally:
            self._prober.stop()
            probing.join()
            for host in self.hosts.values():
                host.kill()
            for host in self.hosts.values():
                host.process.wait()

    def _rounds(self) -> None:
        while not self._stopping:
            self._wake.wait(ROUND_SECONDS)
            self._wake.clear()
            with self._faults.told():
                self.round()

    def stop(self) -> None:
        """Let `serve` return."""
        self._stopping = True
        self._wake.set()

    def round(self) -> None:
        """Reap, preempt and start hosts, decide which are eligible, and write the snapshot.

        Raises OSError, on a full disk for example; the next round does what is left to do.
        """
        for index, name in enumerate(self.names):
            self._update_host(name, index, wanted=index < self.wanted)
        targets = {host.uid: host.address for host in self.hosts.values()}
        if targets != self._prober.targets:
            self._prober.set_targets(targets)
        workers = dict(self._answers)
        for host in self.hosts.values():
            if host.ready_since is None and host.uid in workers:
                host.ready_since = time.time()
        eligible = eligible_hosts(
            [host.view() for host in self.hosts.values()],
            self.rules,
            workers=workers,
            offered={host.uid for host in self.offered},
        )
        state = SnapshotState.SHORT if eligible.is_short(self.rules) else SnapshotState.OK
        self._publish(eligible.hosts, state)

    def _probed(self, views: Mapping[str, WorkerView]) -> None:
        self._answers.update(views)
        self._wake.set()

    def _update_host(self, name: str, index: int, *, wanted: bool) -> None:
        """Reap, preempt or start the host of this name."""
        host = self.hosts.get(name)
        if host and host.gone:
            del self.hosts[name]
            host = None
        if host and not wanted and not host.preempted:
            host.preempt()
        if host is None and wanted:
            self.hosts[name] = self._start(name, index)

    def _start(self, name: str, index: int) -> LocalHost:
        address = f"{self.network.octets}.{index + 1}"
        link_address(self.folder, name, address)
        shutil.rmtree(self.folder / name, ignore_errors=True)
        replace_file(self.folder / _ROOM, bytes(_ROOM_BYTES))  # on a full disk the host would end as soon as it starts
        (self.folder / _ROOM).unlink()
        return LocalHost.start(
            name=name,
            address=address,
            ready_port=self.network.ready_port,
            folder=self.folder / name,
            command=self.command,
            environment=self.environment,
            directory=self.directory,
            log=self.folder / f"{name}.log",
        )

    def _publish(self, hosts: tuple[Host, ...], state: SnapshotState) -> None:
        changed = hosts != self.offered
        if not changed and self._generation and time.monotonic() - self._written < REWRITE_SECONDS:
            return
        if not self._generation and not hosts:
            return  # an empty first list would end the job: wait for a first host
        generation = self._generation + changed
        snapshot = Snapshot(
            hosts=hosts,
            generation=generation,
            uptime_seconds=uptime_seconds(),
            unix_seconds=int(time.time()),
            state=state,
        )
        write_snapshot(self.folder, snapshot)
        self._generation, self.offered, self._written = generation, hosts, time.monotonic()


def prepare_run_dir(folder: Path) -> None:
    """Create `folder` with the discovery script in it, as the sidecar does with its RUN_DIR."""
    folder.mkdir(parents=True, exist_ok=True)
    write_script(folder)
