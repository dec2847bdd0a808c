"""Under `hvd-elastic horovodrun` the processes of a world meet, too."""

import sys
import time
from pathlib import Path

import pytest

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.snapshot import Host, Snapshot, uptime_seconds, write_snapshot
from testbed.local import forkserver
from testbed.local.harness import own_addresses
from testbed.local.training import SCRIPT, Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

A, B, C = own_addresses()
FLAGS = ("-np", "2", "--min-np", "1", "--max-np", "3", "--network-interface", "lo")


class Supervised(Training):
    """A job of horovodrun over the snapshot, with hosts that are addresses of this machine."""

    def begin(self) -> None:
        write_script(self.run_dir)
        launcher = [sys.executable, "-m", "hvd_elastic.cli", "horovodrun", *FLAGS]
        where = ["--host-discovery-script", str(self.run_dir / "discover-hosts")]
        self.start([*launcher, *where, *forkserver.python(), str(SCRIPT)])

    def put_on_list(self, *addresses: str) -> None:
        self._generation += 1
        hosts = tuple(Host(address=each, slots=1, alias=each, pod=each) for each in addresses)
        now, unix = uptime_seconds(), int(time.time())
        snapshot = Snapshot(hosts=hosts, generation=self._generation, uptime_seconds=now, unix_seconds=unix)
        write_snapshot(self.run_dir, snapshot)

    def has_met(self) -> int:
        """How often a process has found the others in a meeting, as Horovod's C++ says it."""
        return (self.folder / "out").read_text(errors="replace").count("Gloo contexts initialized in the meeting")


@pytest.mark.core
@pytest.mark.needs_patch("gloo-meeting")
def test_each_world_meets(tmp_path: Path) -> None:
    with training(tmp_path, EPOCHS="1000", HOROVOD_LOG_LEVEL="debug") as job:
        job.__class__ = Supervised
        assert isinstance(job, Supervised)
        job.put_on_list(A, B)
        job.begin()
        job.trains(2)
        assert job.has_met() == 2
        job.put_on_list(A, B, C)
        job.trains(3)
        assert job.has_met() == 2 + 3
        job.put_on_list(A, C)
        job.trains(2)
        assert job.has_met() == 2 + 3 + 2
