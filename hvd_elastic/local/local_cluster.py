"""The local hosts of one job, and the loop that is kubelet, scheduler and discovery to them.

Data: the wanted number of hosts goes in; pods (`PodView`) and what their entry points answer come out of each round;
eligibility decides as in a cluster, and the snapshot is written where it changed.
"""

import os
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
from hvd_elastic.discovery.sidecar.prober import Prober
from hvd_elastic.local.launcher_commands import link_address
from hvd_elastic.local.local_host import LocalHost
from hvd_elastic.mpijob.contract import READY_PORT, HvdElasticError, SnapshotState

ROUND_SECONDS: Final = 0.05
"""Between two looks at the hosts. A cluster's watch tells within milliseconds; here a look is cheap."""

VOUCH_SECONDS: Final = 1.0
"""An unchanged snapshot is written again after so long, so that it never looks stale."""

ASK_SECONDS: Final = 0.1
"""Between two questions to a host's ready port: it stands for the watch too, which would tell that a pod is Ready."""


class NoLoopbackError(HvdElasticError):
    """No free range of loopback addresses: this is not Linux, or 127.0.0.0/8 is in use."""


def free_network() -> str:
    """Three octets of loopback addresses that no other job on this machine listens on.

    Raises NoLoopbackError where the machine has only 127.0.0.1.
    """
    for _ in range(20):
        network = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"  # noqa: S311 - any free one will do
        with closing(socket.socket()) as probe:
            try:
                probe.bind((f"{network}.1", READY_PORT))
            except OSError:
                continue
            return network
    raise NoLoopbackError(f"no loopback address can be bound (system: {os.uname().sysname}): local hosts need Linux")


@dataclass(slots=True, kw_only=True)
class LocalCluster:
    """Starts and stops hosts until there are as many as wanted. Use `serve` in a thread, then `stop`."""

    folder: Path
    """Snapshot, script and one folder a host. Removed by its owner."""
    command: Sequence[str]
    environment: Mapping[str, str]
    rules: EligibilityRules
    names: Sequence[str]
    """Of all hosts that may exist, the ones that go last first."""
    network: str = field(default_factory=free_network)
    wanted: int = 0
    hosts: dict[str, LocalHost] = field(default_factory=dict)
    offered: tuple[Host, ...] = ()
    _generation: int = 0
    _written: float = 0.0
    _answers: dict[str, WorkerView] = field(default_factory=dict)
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _prober: Prober = field(init=False)

    def __post_init__(self) -> None:
        self._prober = Prober(self._answered, interval_seconds=ASK_SECONDS)

    @property
    def inference(self) -> int:
        """Hosts that are free of training: what inference can run on."""
        return len(self.names) - len(self.hosts)

    def want(self, hosts: int) -> None:
        """From now on there are `hosts` hosts; those too many are preempted, the last first."""
        self.wanted = max(0, min(hosts, len(self.names)))
        self._wake.set()

    def serve(self) -> None:
        """Rounds until `stop`; then every host's processes are ended at once."""
        asking = threading.Thread(target=self._prober.run, name="ready ports")
        asking.start()
        try:
            while not self._stopping:
                self._wake.wait(ROUND_SECONDS)
                self._wake.clear()
                self.round()
        finally:
            self._prober.stop()
            asking.join()
            for host in self.hosts.values():
                host.kill()
            for host in self.hosts.values():
                host.process.wait()

    def stop(self) -> None:
        """Let `serve` return."""
        self._stopping = True
        self._wake.set()

    def round(self) -> None:
        """One look at everything: reap, preempt, start, ask, decide, write."""
        tended = [self._tend(name, index, wanted=index < self.wanted) for index, name in enumerate(self.names)]
        if any(tended):
            self._prober.set_targets({host.uid: host.address for host in self.hosts.values()})
        workers = dict(self._answers)
        for host in self.hosts.values():
            if host.ready_since is None and host.uid in workers:
                host.ready_since = time.time()
        answer = eligible_hosts([host.view() for host in self.hosts.values()], self.rules, workers=workers)
        state = SnapshotState.SHORT if answer.is_short(self.rules) else SnapshotState.OK
        self._publish(answer.hosts, state)

    def _answered(self, views: Mapping[str, WorkerView]) -> None:
        self._answers.update(views)
        self._wake.set()

    def _tend(self, name: str, index: int, *, wanted: bool) -> bool:
        """Whether there is another host of this name, or none, than before."""
        before = host = self.hosts.get(name)
        if host and host.gone:
            del self.hosts[name]
            host = None
        if host and not wanted and not host.preempted:
            host.preempt()
        if host is None and wanted:
            host = self.hosts[name] = self._start(name, index)
        return host is not before

    def _start(self, name: str, index: int) -> LocalHost:
        address = f"{self.network}.{index + 1}"
        link_address(self.folder, name, address)
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return LocalHost.start(
            name=name,
            address=address,
            folder=self.folder / name,
            command=self.command,
            environment=self.environment,
            log=self.folder / f"{name}.log",
        )

    def _publish(self, hosts: tuple[Host, ...], state: SnapshotState) -> None:
        changed = hosts != self.offered
        if not changed and self._generation and time.monotonic() - self._written < VOUCH_SECONDS:
            return
        if not self._generation and not hosts:
            return  # the first list waits for a first host: an empty one is the end of the job
        self._generation += changed
        self.offered, self._written = hosts, time.monotonic()
        snapshot = Snapshot(
            hosts=hosts,
            generation=self._generation,
            uptime_seconds=uptime_seconds(),
            unix_seconds=int(time.time()),
            state=state,
        )
        write_snapshot(self.folder, snapshot)


def prepare(folder: Path) -> None:
    """Make `folder` what the sidecar makes of its RUN_DIR."""
    folder.mkdir(parents=True, exist_ok=True)
    write_script(folder)
