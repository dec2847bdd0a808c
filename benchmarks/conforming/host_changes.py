"""A host of a job is taken, given back or lost: what that costs, by the job's step log."""

import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from benchmarks.faulted import fault_cost
from benchmarks.faulted.fault_cost import FaultCost
from benchmarks.peers.local_system import EVENTS, Places
from testbed.cluster.training import GrowingAccount

_LOOK_SECONDS: Final = 0.05


class HostChange(StrEnum):
    """What befalls the last host."""

    TAKEN = "taken"
    BACK = "given back"
    KILLED = "killed, and started again"

    def size(self, hosts: int) -> int:
        """Hosts on which the job trains afterwards."""
        return hosts - 1 if self is HostChange.TAKEN else hosts

    def befall(self, places: Places, hosts: int) -> None:
        """Let it happen."""
        if self is HostChange.KILLED:
            places.kill()
        else:
            places.want(self.size(hosts))


def changed(
    places: Places, folder: Path, changes: Iterable[HostChange], *, hosts: int, samples: int, patience: float
) -> list[tuple[HostChange, FaultCost]]:
    """Let one after the other happen to a job that trains on all hosts, until one does not end within the patience.

    Args:
        places: the hosts, all of which are wanted.
        folder: of the run.
        changes: what happens, each as soon as the job trains steadily after the one before.
        hosts: how many there are, each of one rank.
        samples: of the data set.
        patience: seconds.
    """
    log, found = GrowingAccount(folder / EVENTS), list[tuple[HostChange, FaultCost]]()
    for change in changes:
        struck = time.time()
        change.befall(places, hosts)
        size = change.size(hosts)
        is_whole = _settles(places, log, size, since=struck, patience=patience)
        account, now = log.look(), time.time()
        stands = now - account.steps[-1]["time"] > fault_cost.STILL_SECONDS
        ended = "" if is_whole else "stands still" if stands else f"unsteady with {account.size} of {size}"
        cost = FaultCost.of(account, since=struck, until=now, size=size, samples=samples, ended=ended)
        found.append((change, cost))
        print(f"{time.strftime('%H:%M:%S')}   {change}: {cost}", flush=True)
        if not is_whole:
            break
    return found


def _settles(places: Places, log: GrowingAccount, size: int, *, since: float, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while (now := time.monotonic()) < deadline:
        places.tend(now)
        if fault_cost.is_settled(log.look().steps, since=since, now=time.time(), sizes=[size]):
            return True
        time.sleep(_LOOK_SECONDS)
    return False
