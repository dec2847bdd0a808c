"""Sixty-four processes on sixteen hosts: each knows its place, however the world changes, and survivors keep theirs.

The processes are the tiny ones of the harness, so that a small machine has room for all of them.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.snapshot import Host
from testbed.local.harness import WORKER, Event, Job
from testbed.local.harness import job as make_job
from testbed.local.host_list import put_hosts

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

HOSTS, SLOTS = 16, 4
SECONDS: Final = 240.0
"""A deadline for a world of sixty-four on two busy cores."""


class ManySlots(Job):
    """A job whose hosts are made-up addresses: horovodrun reaches them by a program that is called ssh."""

    launcher = "launch"

    def begin(self, hosts: Sequence[str]) -> None:
        """Offer the hosts and start the launcher, which waits for all of their slots."""
        self.offer(hosts)
        sizes = ("-np", str(len(hosts) * SLOTS), "--min-np", "1", "--max-np", str(HOSTS * SLOTS))
        flags = (*sizes, "--start-timeout", "240", "--gloo-timeout-seconds", "120")
        if self.launcher == "launch":
            self.launch(*flags)
            return
        write_script(self.run_dir)
        where = ("--host-discovery-script", str(self.run_dir / "discover-hosts"), "--network-interface", "lo")
        self.put_ssh_here()
        stock = [sys.executable, "-S", str(WORKER), "--stock"]
        self.start([sys.executable, "-m", "hvd_elastic.cli", "horovodrun", *flags, *where], stock)

    def offer(self, addresses: Sequence[str]) -> None:
        """Put exactly these hosts on the list."""
        self._generation += 1
        hosts = tuple(Host(address=each, slots=SLOTS, alias=each, pod=each) for each in addresses)
        put_hosts(self.run_dir, hosts, self._generation)

    def order_of(self, hosts: Sequence[str]) -> list[str]:
        """Wait until all slots of exactly these hosts train together. Check each place; return the hosts' order."""
        names = [f"{host}:{slot}" for host in hosts for slot in range(SLOTS)]
        self.trains(*names, seconds=SECONDS)
        places = {name: self.events("joined", name)[-1] for name in names}
        order = sorted(hosts, key=lambda host: int(places[f"{host}:0"]["rank"]))
        assert {name: _place(event) for name, event in places.items()} == {
            f"{host}:{slot}": {
                "rank": number * SLOTS + slot,
                "size": len(names),
                "local_rank": slot,
                "local_size": SLOTS,
                "cross_rank": number,
                "cross_size": len(hosts),
            }
            for number, host in enumerate(order)
            for slot in range(SLOTS)
        }
        return order


def _place(joined: Event) -> Event:
    return {key: value for key, value in joined.items() if key.endswith(("rank", "size"))}


@pytest.fixture(params=["launch", "horovodrun"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ManySlots]:
    with make_job(tmp_path, step_seconds=0.2) as made:
        made.__class__ = ManySlots
        assert isinstance(made, ManySlots)
        made.launcher = request.param
        yield made


def test_sixteen_hosts_of_four_slots_lose_one_shrink_to_half_and_grow_back(job: ManySlots) -> None:
    hosts = [f"127.0.1.{number}" for number in range(1, HOSTS + 1)]
    job.begin(hosts)
    first = job.order_of(hosts)

    lost = first[5]
    for slot in range(SLOTS):
        with contextlib.suppress(ProcessLookupError):  # the launcher ends the rest of a host that has lost a process
            job.kill(f"{lost}:{slot}")
    left = [host for host in first if host != lost]
    job.offer(left)
    assert job.order_of(left) == left, "the survivors keep their order"

    half = left[-HOSTS // 2 :]
    shrunk = time.time()
    job.offer(half)
    assert job.order_of(half) == half, "rank 0's host is gone, and the next oldest takes its place"
    job.until(partial(_only, job, half), "the processes of the other hosts have ended", SECONDS)
    assert not _reset_by(job, "PeerLost", since=shrunk), "a host that is taken off the list breaks no collective"

    newcomers = [f"127.0.2.{number}" for number in range(1, HOSTS // 2 + 1)]
    grown = time.time()
    job.offer([*newcomers, *half])
    whole = job.order_of([*half, *newcomers])
    assert whole[: len(half)] == half, "the survivors keep their ranks"
    assert not _reset_by(job, "PeerLost", since=grown)
    job.check_no_step_was_lost()


def _only(job: ManySlots, hosts: Sequence[str]) -> bool:
    return len(job.left()) == len(hosts) * SLOTS


def _reset_by(job: ManySlots, why: str, *, since: float) -> list[Event]:
    return [event for event in job.events("reset") if event["time"] > since and event["why"] == why]
