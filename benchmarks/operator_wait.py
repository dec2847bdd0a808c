"""How often the MPI Operator looks away when half of a job's workers leave or come back, and whether we cause it.

    python -m benchmarks.operator_wait [--workers 512] [--rounds 3] [--pace 50:1000] [--recorded]

The cluster is that of docs/cluster.md, nodes and workers are kwok's (`benchmarks.operator_scale`). A job is halved and
grown again some times: under the operator as it is released and with `testbed/kube/patches/mpi-operator`, while nobody
writes the live status onto the MPIJob, while the job's sidecar does, and while somebody writes it each 2 s, as the
sidecar did before it held it back. Writes out/bench-operator-wait/, which `--recorded` shows; what is not measured
again stays.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.mpi_operator.measured_scale import Change, Pace
from benchmarks.mpi_operator.measured_waits import MeasuredWaits, Operator, Writes, measure
from benchmarks.report.measurements import last_measured
from benchmarks.report.record import NEVER, Column, Table
from testbed.cluster import jobs
from testbed.cluster.site import Site, running_or_up
from testbed.kube import cluster as kube

OUT: Final = Path("out/bench-operator-wait")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pace", type=Pace.parse, default=Pace.parse("50:1000"), help="REQUESTS:EVENTS")
    parser.add_argument("--operators", type=Operator, nargs="+", default=[*Operator])
    parser.add_argument("--writes", type=lambda name: Writes[name.upper()], nargs="+", default=[*Writes])
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")
    flags = parser.parse_args()
    if not flags.recorded:
        running, ours = running_or_up()
        try:
            # No container starts: the image's name is only written.
            site = Site(kubectl=running.kubectl, image="registry.invalid/none:1", machine=running)
            measure_all(site, flags)
        finally:
            if ours:
                kube.down()
    found = last_measured(OUT, MeasuredWaits.from_json)
    record = found.record(
        name="operator_wait", question="How often does the MPI Operator look away, and do we cause it?"
    )
    record.add(wait_table(sorted(found.parts, key=lambda one: one.order), found.left_out))
    record.write()


def measure_all(site: Site, flags: argparse.Namespace) -> None:
    """Each operator with each kind of writes."""
    jobs.priority_classes(site)
    for operator, writes in itertools.product(flags.operators, flags.writes):
        print(f"{time.strftime('%H:%M:%S')} {operator}, the status is written by {writes}", flush=True)
        measure(site, operator, writes, workers=flags.workers, pace=flags.pace, rounds=flags.rounds).keep(OUT)


def wait_table(measured: Sequence[MeasuredWaits], left_out: Sequence[str] = ()) -> Table:
    """A row for each operator and each kind of writes."""
    return Table(
        name="operator-waits",
        title="Seconds from a change until the pods are as asked for and the operator has noted how many run",
        columns=(
            Column(title="workers", format="d"),
            Column(title="pace"),
            Column(title="operator"),
            Column(title="who writes the status"),
            *(
                Column(title=f"{change}: {title}", format=form)
                for change in (Change.HALF_LEAVE, Change.HALF_BACK)
                for title, form in (("stood still", ""), ("median of the others", ".1f"), ("longest of them", ".1f"))
            ),
            Column(title="operator, CPU s a change", format=".1f"),
        ),
        rows=[
            [
                *(one.workers, str(one.pace), one.operator, one.writes),
                *(cell for change in (Change.HALF_LEAVE, Change.HALF_BACK) for cell in _cells(one.seconds[change])),
                statistics.median(one.cpu) if one.cpu else None,
            ]
            for one in measured
        ],
        note="\n".join(["It stood still: not within 90 s, and then the operator was started anew.", *left_out]),
    )


def _cells(seconds: Sequence[float]) -> tuple[str, float | None, float | None]:
    ended = [each for each in seconds if each != NEVER]
    stood = f"{len(seconds) - len(ended)} of {len(seconds)}"
    return (stood, statistics.median(ended), max(ended)) if ended else (stood, None, None)


if __name__ == "__main__":
    main()
