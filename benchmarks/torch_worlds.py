"""How long a world of torch.distributed takes to form: in place, where torch can, and anew, as the product does it.

    python -m benchmarks.torch_worlds [--rounds 20] [--most 4]

Processes of one machine form worlds of sizes that change from round to round, over Gloo and one store, first in one way
and then in the other: a member that leaves, one that comes. Timed is from the moment at which the last member begins
until the last has its first sum. In place: `enable_reconfigure` and `_reconfigure` of torch 2.14 and later, which are
experimental. What DistributedDataParallel adds in a new world is the same in both.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
from torch import distributed
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from benchmarks.report.record import Column, Record, Table, Value

TIMEOUT: Final = timedelta(seconds=60)
WAYS: Final = ("in place", "anew")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="worlds in each way")
    parser.add_argument("--most", type=int, default=4, help="processes of the largest world")
    given = parser.parse_args()
    sizes = [given.most - each % 2 for each in range(given.rounds)]
    record = Record(name="torch_worlds", question="Is a world of torch.distributed formed sooner in place or anew?")
    columns = [Column(title="way"), Column(title="worlds", format="d")]
    columns += [Column(title=title, format=".0f") for title in ("median, ms", "p95, ms", "most, ms")]
    rows: list[list[Value]] = []
    for way in WAYS:
        if way == "in place" and not hasattr(distributed, "_reconfigure"):
            print(f"torch {torch.__version__} forms no world in place", file=sys.stderr)
            continue
        seconds = sorted(formed(way, sizes))
        p95 = seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))]
        rows.append([way, len(seconds), *(1e3 * each for each in (statistics.median(seconds), p95, seconds[-1]))])
    title = f"Worlds of {given.most - 1} and {given.most} processes in turns"
    record.add(Table(name="torch-worlds", title=title, columns=columns, rows=rows))
    record.write()
    return 0


def formed(way: str, sizes: Sequence[int]) -> list[float]:
    """Return the seconds that each world has taken."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    spawn = multiprocessing.get_context("spawn")
    members = [spawn.Process(target=_member, args=(member, way, sizes, store.port)) for member in range(max(sizes))]
    for member in members:
        member.start()
    for member in members:
        member.join()
    return [_last(store, f"end.{number}", of) - _last(store, f"begin.{number}", of) for number, of in enumerate(sizes)]


def _last(store: Store, name: str, size: int) -> float:
    return max(float(store.get(f"{name}.{member}").decode()) for member in range(size))


def _member(member: int, way: str, sizes: Sequence[int], port: int) -> None:
    """One process: a member of each world that has a place for it."""
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)
    form = InPlace(member, max(sizes), store) if way == "in place" else Anew(member, store)
    for number, size in enumerate(sizes):
        _meet(store, f"round.{number}", max(sizes))  # the one that has left waits, too
        if member >= size:
            continue
        _meet(store, f"ready.{number}", size)
        store.set(f"begin.{number}.{member}", str(time.time()))
        form(number, size)
        total = torch.ones(1)
        distributed.all_reduce(total)
        assert total.item() == size
        store.set(f"end.{number}.{member}", str(time.time()))
    _meet(store, "over", max(sizes))


def _meet(store: Store, name: str, size: int) -> None:
    if store.add(name, 1) == size:
        store.set(f"{name}.met", "")
    store.wait([f"{name}.met"])


class InPlace:
    """One group for the life of the process."""

    def __init__(self, member: int, most: int, store: Store) -> None:
        self._member, self._store = member, store
        distributed.init_process_group(
            "gloo", store=PrefixStore("group", store), rank=member, world_size=most, enable_reconfigure=True
        )

    def __call__(self, number: int, size: int) -> None:
        torch_distributed: Any = distributed
        names = [f"handle.{number}.{rank}" for rank in range(size)]
        self._store.set(names[self._member], torch_distributed._get_reconfigure_handle())
        handles = [self._store.get(name).decode() for name in names]
        torch_distributed._reconfigure(number + 1, handles).wait()


class Anew:
    """A group for each world."""

    def __init__(self, member: int, store: Store) -> None:
        self._member, self._store = member, store

    def __call__(self, number: int, size: int) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        store = PrefixStore(f"world.{number}", self._store)
        distributed.distributed_c10d._world.group_count = 0
        distributed.init_process_group("gloo", store=store, rank=self._member, world_size=size, timeout=TIMEOUT)


if __name__ == "__main__":
    raise SystemExit(main())
