"""Under `hvd-elastic horovodrun` the processes of a world meet, too, or learn at once that one of them is dead."""

import sys
from pathlib import Path

import pytest

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.snapshot import Host
from testbed.local import forkserver
from testbed.local.harness import own_addresses
from testbed.local.host_list import put_hosts
from testbed.local.training import GLOO_TIMEOUT_SECONDS, SCRIPT, Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

A, B, C = own_addresses()
FLAGS = ("-np", "2", "--min-np", "1", "--max-np", "3", "--network-interface", "lo")


class Supervised(Training):
    """A job of horovodrun over the snapshot, with hosts that are addresses of this machine."""

    def begin(self, script: Path = SCRIPT) -> None:
        write_script(self.run_dir)
        launcher = [sys.executable, "-m", "hvd_elastic.cli", "horovodrun", *FLAGS]
        where = ["--host-discovery-script", str(self.run_dir / "discover-hosts")]
        self.start([*launcher, *where, *forkserver.python(), str(script)])

    def put_on_list(self, *addresses: str) -> None:
        self._generation += 1
        hosts = tuple(Host(address=each, slots=1, alias=each, pod=each) for each in addresses)
        put_hosts(self.run_dir, hosts, self._generation)

    def has_met(self) -> int:
        """How often a process has found the others in a meeting, as Horovod's C++ says it."""
        return (self.folder / "out").read_text(errors="replace").count("Gloo contexts initialized in the meeting")


DIES_IN_INIT = f"""
import os, pathlib, runpy, signal
from hvd_elastic.trainer.elastic.world import rendezvous_client

join, mark = rendezvous_client.join, pathlib.Path(os.environ["DIED"])

def join_and_die():
    is_whole = join()
    if is_whole and os.environ["HOROVOD_HOSTNAME"] == {C!r} and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return is_whole

rendezvous_client.join = join_and_die
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""
"""The first process on C runs out of memory, say, once all have come to the barrier, and before it connects to them."""


def test_a_member_that_is_killed_while_its_world_forms_costs_no_gloo_time_out(tmp_path: Path) -> None:
    """Under bare `horovodrun` the others wait in `hvd.init()` for it, 30 s by default, here five minutes."""
    died, script = tmp_path / "died", tmp_path / "train.py"
    script.write_text(DIES_IN_INIT)
    with training(tmp_path, EPOCHS="1000", DIED=str(died)) as job:
        job.__class__ = Supervised
        assert isinstance(job, Supervised)
        job.put_on_list(A, B)
        job.begin(script)
        job.trains(2)
        job.put_on_list(A, B, C)
        job.until(died.exists, "the newcomer is killed")
        job.trains(2, seconds=GLOO_TIMEOUT_SECONDS / 3)


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
