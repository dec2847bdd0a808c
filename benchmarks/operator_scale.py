"""What the MPI Operator does with jobs of thousands of workers, how long it takes, and what it costs.

    python -m benchmarks.operator_scale [--workers 64 512 1024 4096] [--paces 50:10 50:1000] [--recorded]

The cluster is that of docs/cluster.md. Its API server, scheduler, controllers and MPI Operator are real; nodes and
workers are kwok's, which runs a pod by writing that it runs. So this shows the control plane, and no kubelet, image or
network. A job of each size is applied, loses one worker and half of them by a smaller number of replicas, gets them
back, and is deleted. Measured is when the pods are made, bound and running, when the operator's ConfigMap names them
(stock `horovodrun` reads it, the product does not), and when discovery's list has them: a real sidecar, which starts
when the launcher's pod is made.

A pace is what the operator allows itself: requests a second to the API server (`-kube-api-qps`), and news of a job's
pods that it looks at in a second (`-controller-queue-rate-limit`). Its defaults are 5:10. Several are measured one by
one. Writes out/bench-operator-scale/, which `--recorded` shows; what is not measured again stays.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.mpi_operator.control_plane import API_SERVER, CONTROLLERS, OPERATOR, SCHEDULER, SIDECAR
from benchmarks.mpi_operator.measured_scale import Change, MeasuredScale, Moment, Pace
from benchmarks.mpi_operator.scaled_job import measure
from benchmarks.report.growth import growth
from benchmarks.report.measurements import Measurements, last_measured
from benchmarks.report.record import Column, Table, Value
from testbed.cluster import jobs
from testbed.cluster.site import Site, running_or_up
from testbed.kube import cluster as kube

OUT: Final = Path("out/bench-operator-scale")
WORKERS: Final = Column(title="workers", format="d")
PACE: Final = Column(title="pace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 512, 1024, 4096])
    parser.add_argument(
        "--paces",
        type=Pace.parse,
        nargs="+",
        default=[Pace.parse("50:10"), Pace.parse("50:1000")],
        help="REQUESTS:EVENTS",
    )
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")
    flags = parser.parse_args()
    if not flags.recorded:
        running, ours = running_or_up()
        try:
            # No container starts: the image's name is only written.
            site = Site(kubectl=running.kubectl, image="registry.invalid/none:1", machine=running)
            jobs.priority_classes(site)
            for pace in flags.paces:
                for workers in flags.workers:
                    print(f"{time.strftime('%H:%M:%S')} {workers} workers, pace {pace}", flush=True)
                    measure(site, workers, pace).keep(OUT)
        finally:
            if ours:
                kube.down()
    report(last_measured(OUT, MeasuredScale.from_json))


def report(found: Measurements[MeasuredScale]) -> None:
    measured = sorted(found.parts, key=lambda one: one.order)
    record = found.record(
        name="operator_scale", question="What does the MPI Operator do with a job of thousands of workers?"
    )
    record.add(start_table(measured, found.left_out))
    record.add(change_table(measured))
    record.add(cost_table(measured))
    for pace in dict.fromkeys(one.pace for one in measured):
        same = [one for one in measured if one.pace == pace]
        if len(same) > 1:
            for table in (start_table(same), cost_table(same)):
                record.add(growth(_of_one_pace(table), name=f"{table.name}-growth-{pace}".replace(":", "-")))
    record.write()


def start_table(measured: Sequence[MeasuredScale], left_out: Sequence[str] = ()) -> Table:
    """How long a job takes to be there."""
    broken = [f"{one.workers} workers, {one.pace}: {one.broken}" for one in measured if one.broken]
    of_all = (Moment.CREATED, Moment.BOUND, Moment.RUNNING, Moment.LISTED, Moment.OFFERED)
    return Table(
        name="operator-start",
        title="Seconds from `kubectl apply` until all workers are ...",
        columns=(
            WORKERS,
            PACE,
            *(Column(title=moment, format=".1f") for moment in of_all),
            Column(title="operator's looks at the job", format="d"),
            Column(title="s they took", format=".1f"),
            Column(title="KiB of its ConfigMap", format=".0f"),
            Column(title="load", format=".1f"),
        ),
        rows=[
            [
                *(one.workers, str(one.pace), *(_seconds(one, Change.START, moment) for moment in of_all)),
                *(one.syncs, one.sync_seconds, one.configmap_bytes / 1024, one.load),
            ]
            for one in measured
        ],
        note="\n".join([*broken, *left_out]),
    )


def change_table(measured: Sequence[MeasuredScale]) -> Table:
    """How long a job takes to become smaller, larger, and nothing."""
    ends = {
        Change.ONE_LEAVES: Moment.GONE,
        Change.ONE_BACK: Moment.RUNNING,
        Change.HALF_LEAVE: Moment.GONE,
        Change.HALF_BACK: Moment.RUNNING,
    }
    changes = [(change, moment) for change, end in ends.items() for moment in (end, Moment.LISTED, Moment.OFFERED)]
    changes.append((Change.DELETED, Moment.GONE))
    return Table(
        name="operator-changes",
        title="Seconds from a change until its last pod is so far, and until both lists have the workers that are left",
        columns=(WORKERS, PACE, *(Column(title=f"{change}: {moment}", format=".1f") for change, moment in changes)),
        rows=[[one.workers, str(one.pace), *(_seconds(one, *change) for change in changes)] for one in measured],
    )


def cost_table(measured: Sequence[MeasuredScale]) -> Table:
    """What that costs the processes of the control plane."""
    processes = (OPERATOR, API_SERVER, SCHEDULER, CONTROLLERS, SIDECAR)
    resident = (OPERATOR, API_SERVER, SIDECAR)
    return Table(
        name="operator-cost",
        title="CPU seconds from `kubectl apply` until all workers are offered, and memory then",
        columns=(
            WORKERS,
            PACE,
            *(Column(title=f"{process}, CPU s", format=".1f") for process in processes),
            *(Column(title=f"{process}, MiB", format=".0f") for process in resident),
            *(
                Column(title=f"{OPERATOR}, CPU s, {change}", format=".2f")
                for change in (Change.ONE_LEAVES, Change.HALF_LEAVE, Change.HALF_BACK)
            ),
        ),
        rows=[
            [
                *(one.workers, str(one.pace)),
                *(_cpu(one, Change.START, process) for process in processes),
                *(one.mib.get(process) for process in resident),
                *(_cpu(one, change, OPERATOR) for change in (Change.ONE_LEAVES, Change.HALF_LEAVE, Change.HALF_BACK)),
            ]
            for one in measured
        ],
    )


def _seconds(one: MeasuredScale, change: Change, moment: str) -> float | None:
    found = one.changes.get(change)
    return found.seconds.get(moment) if found else None


def _cpu(one: MeasuredScale, change: Change, process: str) -> float | None:
    found = one.changes.get(change)
    return found.cpu.get(process) if found else None


def _of_one_pace(table: Table) -> Table:
    """The same without the column that is the same in each row."""
    rows: list[list[Value]] = [[*row[:1], *row[2:]] for row in table.rows]
    return Table(name=table.name, title=table.title, columns=[table.columns[0], *table.columns[2:]], rows=rows)


if __name__ == "__main__":
    main()
