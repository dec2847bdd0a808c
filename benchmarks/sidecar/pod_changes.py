"""Pods that change: one after the other, or many at once, and how long the sidecar's list takes to follow."""

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sidecar.sidecar_process import cpu_seconds, names
from benchmarks.sidecar.small_cluster import large, until_shown
from hvd_elastic.mpijob.contract import SNAPSHOT_FILE
from testbed.kube_api import PODS, KubeApi


def churn(api: KubeApi, folder: Path, pods: int, changes: int, seconds: float) -> list[float]:
    """Change one pod after the other, evenly spaced; return how long each change took to show, in seconds."""
    dice, latencies, stop = random.Random(1), [], threading.Event()
    pending: dict[str, tuple[float, bool]] = {}

    def observe() -> None:
        seen = 0
        while not stop.is_set() or pending:
            inode = (folder / SNAPSHOT_FILE).stat().st_ino
            if inode != seen:
                seen, present, now = inode, names(folder), time.perf_counter()
                for name, (since, expected) in list(pending.items()):
                    if (name in present) is expected:
                        del pending[name]
                        latencies.append(now - since)
            time.sleep(0.0005)

    observer = threading.Thread(target=observe)
    observer.start()
    down: set[int] = set()
    due = time.perf_counter()
    for _ in range(int(seconds * changes)):
        index = dice.randrange(pods)
        down ^= {index}
        made = large(index, ready=index not in down)
        if made["metadata"]["name"] not in pending:
            pending[made["metadata"]["name"]] = (time.perf_counter(), index not in down)
            api.put(PODS, made)
        else:
            down ^= {index}
        due += 1 / changes
        time.sleep(max(0.0, due - time.perf_counter()))
    stop.set()
    observer.join()
    return latencies


def bulk(
    pid: int, api: KubeApi, folder: Path, changed: Sequence[int], pods: int, *, ready: bool
) -> tuple[float, float]:
    """Change many pods at once. Returns the seconds until the list is right, and the sidecar's CPU seconds for it."""
    before, started = cpu_seconds(pid), time.perf_counter()
    for index in changed:
        api.put(PODS, large(index, ready=ready))
    until_shown(folder, pods if ready else pods - len(changed))
    return time.perf_counter() - started, cpu_seconds(pid) - before
