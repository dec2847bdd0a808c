"""What discovery costs: time from event to snapshot, memory and CPU of the sidecar, and its script beside /bin/true.

    python -m benchmarks.discovery [--pods 1000 ...] [--changes 50] [--seconds 30]

The sidecar is a separate process. It uses TLS, and a small API server and real ready ports in this process. A change
flips the Ready condition of one pod; its latency ends when a reader of the snapshot file sees it. Then all but half of
the pods are not ready any more, all at once, and come back. With several numbers of pods, a table says how the costs
grow. A fault lasts
FAULT_SECONDS, during which the pods change; measured is the time from the API server's return to the right list. CPU is
user and system time: on a busy machine, compare two versions by it, in turns, and not by the clock.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report.growth import growth
from benchmarks.report.record import Column, Record, Table, Value
from benchmarks.sidecar.api_faults import FAULTS
from benchmarks.sidecar.pod_changes import bulk, churn
from benchmarks.sidecar.sidecar_process import cpu_seconds, resource_peak
from benchmarks.sidecar.small_cluster import discovering, large, until_shown
from hvd_elastic.discovery import Host, Snapshot, uptime_seconds, write_script, write_snapshot
from testbed.kube_api import PODS

SHELL = "/bin/sh"

FAULT_SECONDS = 5.0
FAULT_PODS = 8
RUNS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, nargs="+", default=[1000])
    parser.add_argument("--changes", type=int, default=50, help="a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    record = Record(name="discovery", question="What does discovery cost, and how fast is it?")
    sidecars = Table(
        name="discovery-sidecar",
        title=f"The sidecar, at {options.changes} changes a second for {options.seconds:.0f} s",
        columns=SIDECAR_COLUMNS,
        rows=[sidecar(pods, options.changes, options.seconds) for pods in sorted(options.pods)],
        note=f"A pod has {len(json.dumps(large(0)))} bytes. This server refuses to list nodes, as a cluster may.",
    )
    record.add(sidecars)
    if len(options.pods) > 1:
        record.add(growth(sidecars, name="discovery-growth", of=COSTS))
    record.add(faults())
    record.add(imports())
    record.add(scripts(sorted({3, 64, *options.pods})))
    record.write()


FIRST_CPU, CHANGE_CPU, HALF_CPU, BACK_CPU = "CPU s, first list", "CPU ms a change", "CPU s, half leave", "CPU s, back"
QUIET, RESIDENT, MOST = "of a core, quiet", "MiB", "MiB, most"
COSTS = (FIRST_CPU, CHANGE_CPU, HALF_CPU, BACK_CPU, QUIET, RESIDENT, MOST)
"""Columns of which a table says how they grow."""
SIDECAR_COLUMNS = (
    Column(title="pods", format="d"),
    Column(title="s, first list", format=".2f"),
    Column(title=FIRST_CPU, format=".2f"),
    *(Column(title=f"ms, event to snapshot, {which}", format=".1f") for which in ("p50", "p99", "most")),
    Column(title=CHANGE_CPU, format=".2f"),
    Column(title="of a core, changes", format=".2%"),
    Column(title="s, half leave", format=".2f"),
    Column(title=HALF_CPU, format=".2f"),
    Column(title="s, back", format=".2f"),
    Column(title=BACK_CPU, format=".2f"),
    Column(title=QUIET, format=".2%"),
    Column(title=RESIDENT, format=".1f"),
    Column(title=MOST, format=".1f"),
    Column(title="lists of pods", format="d"),
    Column(title="pages", format="d"),
    Column(title="watches of pods", format="d"),
    Column(title="at a time", format="d"),
)


def sidecar(pods: int, changes: int, seconds: float) -> list[Value]:
    """One sidecar, as a row of the table. Its seconds count from the start of its process."""
    with discovering(pods) as (api, folder, process):
        started = time.perf_counter()
        until_shown(folder, pods)
        full, first_cpu = time.perf_counter() - started, cpu_seconds(process.pid)
        time.sleep(3)
        quiet = busy_share(process.pid, lambda: time.sleep(10))
        latencies: list[float] = []
        loaded = busy_share(process.pid, lambda: latencies.extend(churn(api, folder, pods, changes, seconds)))
        bulk(process.pid, api, folder, range(pods), pods, ready=True)
        left = bulk(process.pid, api, folder, range(pods - pods // 2, pods), pods, ready=False)
        back = bulk(process.pid, api, folder, range(pods - pods // 2, pods), pods, ready=True)
        memory = psutil.Process(process.pid).memory_info().rss / 2**20
        peak = resource_peak(process.pid)
    cuts = statistics.quantiles(latencies, n=100)
    return [
        pods,
        full,
        first_cpu,
        *(1e3 * value for value in (cuts[49], cuts[98], max(latencies))),
        1e3 * loaded / changes,
        loaded,
        *left,
        *back,
        quiet,
        memory,
        peak,
        api.lists(),
        api.asked(watch=False),
        api.asked(watch=True),
        api.most_watching[PODS],
    ]


def faults() -> Table:
    """Each fault in turn, on one sidecar: seconds from its end to the right list."""
    with discovering(FAULT_PODS) as (api, folder, _):
        until_shown(folder, FAULT_PODS)
        took: dict[str, float] = {}
        for name, (begin, end) in FAULTS.items():
            begin(api)
            api.cut()
            api.put(PODS, large(0, ready=False))
            time.sleep(FAULT_SECONDS)
            started = time.perf_counter()
            end(api)
            until_shown(folder, FAULT_PODS - 1)
            took[name] = time.perf_counter() - started
            api.put(PODS, large(0))
            until_shown(folder, FAULT_PODS)
    return Table(
        name="discovery-faults",
        title=f"After a fault of the API server of {FAULT_SECONDS:.0f} s, {FAULT_PODS} pods",
        columns=(Column(title="fault"), Column(title="s until the list is right", format=".2f")),
        rows=list(took.items()),
    )


def busy_share(pid: int, work: Any) -> float:
    """CPU seconds of `pid` per second while `work` runs."""
    before, started = cpu_seconds(pid), time.perf_counter()
    work()
    return (cpu_seconds(pid) - before) / (time.perf_counter() - started)


def imports() -> Table:
    """Why the sidecar uses http.client and not the `kubernetes` package."""
    rows: list[list[Value]] = []
    for what in ("hvd_elastic.discovery.sidecar.sidecar", "kubernetes.client"):
        code = (
            f"import time; t = time.time(); import {what}; d = time.time() - t\n"
            "import psutil; print(d, psutil.Process().memory_info().rss)"
        )
        seconds, rss = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        rows.append([what, float(seconds), int(rss) / 2**20])
    columns = (Column(title="import"), Column(title="s", format=".2f"), Column(title="MiB resident", format=".0f"))
    return Table(name="discovery-imports", title="What importing takes", columns=columns, rows=rows)


def scripts(sizes: Sequence[int]) -> Table:
    return Table(
        name="discovery-script",
        title=f"The discovery script, above /bin/true through {SHELL}, medians of {RUNS}",
        columns=(
            Column(title="hosts", format="d"),
            Column(title="ms", format=".2f"),
            Column(title="CPU ms", format=".2f"),
        ),
        rows=[script(hosts) for hosts in sizes],
    )


def script(hosts: int) -> list[Value]:
    with tempfile.TemporaryDirectory() as name:
        path = write_script(Path(name))
        offered = tuple(
            Host(
                address=f"10.0.{i // 250}.{i % 250}",
                slots=8,
                alias=f"1f1e2d3c-aaaa-4bbb-8ccc-{i:012}-0",
                pod=f"job-worker-{i}",
            )
            for i in range(hosts)
        )
        write_snapshot(
            path.parent,
            Snapshot(hosts=offered, generation=1, uptime_seconds=uptime_seconds(), unix_seconds=int(time.time())),
        )
        rounds = [(timed("/bin/true"), timed(str(path))) for _ in range(RUNS)]
    wall, cpu = ([script[kind] - true[kind] for true, script in rounds] for kind in (0, 1))
    return [hosts, statistics.median(wall) * 1e3, statistics.median(cpu) * 1e3]


def timed(command: str) -> tuple[float, float]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([SHELL, "-c", command], stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
