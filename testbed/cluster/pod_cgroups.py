"""The cgroup of a pod on this machine's nodes: whether its processes are gone, and how much CPU they may use."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from testbed.kube.controlplane import CGROUP
from testbed.kube.ledger import hierarchies

_PERIOD_MICROSECONDS: Final = 100_000


def pod_cgroups(uid: str) -> list[Path]:
    """Its folder in each hierarchy; none once the kubelet has removed what is left of it."""
    folders = (Path(each) for root in hierarchies() for each, _, _ in os.walk(root / CGROUP))  # some go meanwhile
    return [folder for folder in folders if folder.name == f"pod{uid}" and "kubepods" in folder.parts]


@contextlib.contextmanager
def throttled(uid: str, *, cpus: float) -> Iterator[None]:
    """Let a pod use no more than so many CPUs, as a limit of its own would."""
    quota = str(int(cpus * _PERIOD_MICROSECONDS))
    limited = []
    for folder in pod_cgroups(uid):
        if (folder / "cpu.cfs_quota_us").exists():
            limited.append((folder / "cpu.cfs_quota_us", quota, "-1"))
        elif (folder / "cpu.max").exists():
            limited.append((folder / "cpu.max", f"{quota} {_PERIOD_MICROSECONDS}", "max"))
    assert limited, f"no cgroup limits the CPU of pod {uid}"
    for file, value, _ in limited:
        file.write_text(value)
    try:
        yield
        there = [file.parent for file, _, _ in limited if file.exists()]  # none if the pod has gone meanwhile
        assert not there or any(map(_times_held_back, there)), f"pod {uid} never wanted more CPU"
    finally:
        for file, _, free in limited:
            with contextlib.suppress(FileNotFoundError):  # the pod has gone meanwhile
                file.write_text(free)


def _times_held_back(folder: Path) -> int:
    """How many periods its processes had to wait, since the cgroup was made."""
    counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(counts["nr_throttled"])
