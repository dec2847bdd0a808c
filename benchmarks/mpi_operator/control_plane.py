"""What the processes of the test cluster cost: CPU seconds and memory."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

import psutil

from testbed.kube.cluster import Cluster

OPERATOR: Final = "mpi-operator"
API_SERVER: Final = "kube-apiserver"
SCHEDULER: Final = "kube-scheduler"
CONTROLLERS: Final = "kube-controller-manager"
SIDECAR: Final = "sidecar"
PROCESSES: Final = (OPERATOR, API_SERVER, "etcd", SCHEDULER, CONTROLLERS, "kwok")


def cpu_seconds(machine: Cluster, others: Mapping[str, int]) -> dict[str, float]:
    """User and system time so far, of each of PROCESSES, and of `others` by their numbers."""
    return {name: sum(map(_cpu, found)) for name, found in _processes(machine, others).items()}


def resident_mib(machine: Cluster, others: Mapping[str, int]) -> dict[str, float]:
    """Resident memory now, of the same."""
    return {name: sum(map(_mib, found)) for name, found in _processes(machine, others).items()}


def _processes(machine: Cluster, others: Mapping[str, int]) -> dict[str, list[psutil.Process]]:
    ours = {name: machine.daemon(name).processes() for name in PROCESSES}
    pids = {**ours, **{name: [pid] for name, pid in others.items()}}
    return {name: list(_alive(numbers)) for name, numbers in pids.items()}


def _alive(pids: list[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def _cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _mib(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(process.memory_info().rss / 2**20)
    return 0.0
