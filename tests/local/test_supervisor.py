"""`hvd-elastic horovodrun`: the stock launcher goes on after every host was taken, and ends when the script fails."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.job_beginning import mark_begun
from hvd_elastic.discovery.snapshot import Host
from testbed.local.harness import WORKER, Job, own_addresses
from testbed.local.harness import job as make_job
from testbed.local.host_list import put_hosts

pytestmark = pytest.mark.process

FLAGS = ("-np", "1", "--min-np", "1", "--max-np", "2", "--blacklist-cooldown-range", "1", "2")
A, B, C = own_addresses()


class Supervised(Job):
    """A job of horovodrun over the snapshot, with hosts that are addresses of this machine."""

    def offer(self, *addresses: str, pods: str = "first") -> None:
        """Put these hosts on the list, as the pods of a generation."""
        self._generation += 1
        hosts = tuple(Host(address=a, slots=1, alias=f"{pods}-{a}-0", pod=f"{pods}-{a}") for a in addresses)
        put_hosts(self.run_dir, hosts, self._generation)

    def supervise(self, *flags: str) -> None:
        write_script(self.run_dir)
        launcher = [sys.executable, "-m", "hvd_elastic.cli", "horovodrun", *FLAGS, *flags, "--network-interface", "lo"]
        where = ["--host-discovery-script", str(self.run_dir / "discover-hosts")]
        self.start([*launcher, *where], [sys.executable, "-S", str(WORKER), "--stock"])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Supervised]:
    with make_job(tmp_path) as made:
        made.__class__ = Supervised
        assert isinstance(made, Supervised)
        yield made


@pytest.mark.core
def test_every_host_is_taken_and_comes_back(job: Supervised) -> None:
    """Twice in a row, and once more all of them are replaced at once."""
    job.offer(A, B)
    job.supervise()
    job.trains(f"{A}:0", f"{B}:0")
    for pods in ("second", "third"):
        for name in (f"{A}:0", f"{B}:0"):
            job.kill(name)
        job.offer()
        job.until(lambda: not job.left(), "no worker is left")
        job.offer(A, B, pods=pods)
        job.trains(f"{A}:0", f"{B}:0")
    job.offer(C, pods="fourth")
    job.trains(f"{C}:0")
    assert job.process is not None
    assert job.process.poll() is None


def test_a_list_that_was_empty_for_a_moment_costs_nothing(job: Supervised) -> None:
    job.offer(A)
    job.supervise()
    job.trains(f"{A}:0")
    job.offer()
    time.sleep(0.3)  # shorter than a round of horovodrun's discovery, or longer: both must do
    job.offer(A)
    job.trains(f"{A}:0")
    assert len(job.events("started")) == 1


def test_a_job_that_has_begun_before_begins_again_with_its_minimum(job: Supervised) -> None:
    mark_begun(job.run_dir)
    job.offer(A)
    job.supervise("-np", "2")
    job.trains(f"{A}:0")


def test_it_waits_for_the_sidecar_which_may_start_later(job: Supervised) -> None:
    job.supervise("-np", "2")
    job.until(lambda: "waiting for the first list" in job.said(), "it waits")
    mark_begun(job.run_dir)
    job.offer(A)
    job.trains(f"{A}:0")


def test_a_signal_ends_the_wait_for_the_sidecar(job: Supervised) -> None:
    job.supervise()
    job.until(lambda: "waiting for the first list" in job.said(), "it waits")
    assert job.process is not None
    job.process.terminate()
    assert job.ends() == 128 + signal.SIGTERM


@pytest.mark.core
def test_a_failure_of_the_script_ends_the_job(job: Supervised) -> None:
    job.offer(A)
    job.supervise()
    job.trains(f"{A}:0")
    job.order(f"{A}:0", "step", "exit 3")
    assert job.ends() == 3
    assert len(job.events("started")) == 1, job.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(job: Supervised, number: int) -> None:
    job.offer(A, B)
    job.supervise()
    job.trains(f"{A}:0", f"{B}:0")
    assert job.process is not None
    job.process.send_signal(number)
    assert job.ends() == 128 + number
    assert not job.left()
