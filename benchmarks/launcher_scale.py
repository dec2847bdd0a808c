"""The cost of the launcher itself: 64 tiny local workers (no torch), resized 64 -> 32 -> 64, and its reaction times.

    python -m benchmarks.launcher_scale [--workers 64]

`driver` is how long all workers wait for the launcher: from the last request for a place to the last answer, plus from
the last arrival at the barrier to the last release. `cpu` is the launcher's own time on a core meanwhile. `pause` is
what the launcher reports: from the notification until all workers are at the barrier.
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

from hvd_elastic.system.processes import read_stat
from tests.local.harness import Event, Job
from tests.local.harness import job as make_job


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    count = parser.parse_args().workers
    print(
        f"{platform.node()}: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    names = tuple(f"h{number}" for number in range(count))
    with tempfile.TemporaryDirectory() as folder, make_job(Path(folder), step_seconds=0.2) as job:
        job.environment["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "60"
        job.hosts(*names)
        job.launch("-np", str(count), "--min-np", "1")
        resize(job, names, "start")
        resize(job, names[: count // 2], f"{count} -> {count // 2}")
        resize(job, names, f"{count // 2} -> {count}")
        reactions(job, names)


def resize(job: Job, names: tuple[str, ...], what: str) -> None:
    """Offer the hosts, wait until all of them train together, and print how long each part took."""
    began, cpu = time.time(), cpu_seconds(job)
    job.hosts(*names)
    job.until(lambda: trains(job, len(names), began), what, 300)
    cpu = cpu_seconds(job) - cpu
    events = [e for e in job.events() if e["time"] > began]
    joined = [e["time"] for e in events if e["event"] == "joined"]
    pause = job.status()["resizes"][-1]["pause_seconds"]
    share = f"driver {driver_share(events):.3f} s, pause {pause:.3f} s, " if pause is not None else ""
    print(f"{what:12} {share}cpu {cpu:.2f} s, all joined {max(joined) - began:.2f} s after the change of the snapshot")


def driver_share(events: list[Event]) -> float:
    """How long all workers wait for the launcher, in seconds; see the module."""

    def times(kind: str) -> list[float]:
        return [e["time"] for e in events if e["event"] == kind and e.get("answer", "b'go'") == "b'go'"]

    return max(times("told")) - max(times("asks")) + max(times("answered")) - max(times("joins"))


def cpu_seconds(job: Job) -> float:
    """CPU time of the launcher's process so far."""
    assert job.process is not None
    stat = read_stat(job.process.pid)
    assert stat is not None
    return stat.cpu_ticks / os.sysconf("SC_CLK_TCK")


def trains(job: Job, size: int, began: float) -> bool:
    """Whether a world of that size steps."""
    joined: list[Event] = [e for e in job.events("joined") if e["time"] > began and e["size"] == size]
    return len(joined) >= size and job.size() == size


def reactions(job: Job, names: tuple[str, ...]) -> None:
    """Measure from the snapshot's rename to the notification's arrival at rank 0."""
    times = []
    hosts = list(names)
    for _ in range(8):
        hosts.pop()
        known = len(job.events("notified"))
        began = time.time()
        job.hosts(*hosts)
        job.until(lambda known=known: len(job.events("notified")) > known, "a notification", 60)  # type: ignore[misc]
        times.append(1000 * (job.events("notified")[known]["time"] - began))
        size = len(hosts)
        job.until(lambda began=began, size=size: trains(job, size, began), "the next world", 120)  # type: ignore[misc]
    print(
        f"snapshot to notification: {min(times):.1f} / {sorted(times)[4]:.1f} / {max(times):.1f} ms (min, median, max)"
    )


if __name__ == "__main__":
    main()
