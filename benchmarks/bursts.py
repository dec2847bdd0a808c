"""What a burst of inference pods waits for: GPUs of training, beside idle ones and beside pods that end at once.

    python -m benchmarks.bursts [--rounds 10] [--gpus 1 2 3] [--systems launch] [--sizes 64:22 128:79] [--recorded]

The cluster is that of docs/cluster.md: a real scheduler preempts for pods that are created at once. On a real node a
real job of four workers gives one GPU, two and three. Then nodes of kwok give a job of 64 and of 128 workers their
place, and 22 and 79 pods ask: so many were created in the busiest minute of a hundred, and in the busiest of all, of
recorded inference (Alibaba, cluster-trace-gpu-v2025). Workers and victims of kwok are stubs. They are gone so long
after they were told to end as those on the real node were, at the median.

Asked and running are as a watch of the API server tells: its own timestamps are whole seconds. Aims: p50 at most 0.25 s
above pods that end at once for one GPU, 1 s for more. Writes out/bench-bursts/, which `--recorded` shows; what is not
measured again stays.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.burst import fake_nodes, real_nodes
from benchmarks.burst.burst_tables import aims, parts_table, waiting_table
from benchmarks.burst.measured_burst import Leaving, Measured
from benchmarks.report.machine import product_digest
from benchmarks.report.measurements import Measurements, last_measured, measured_of
from benchmarks.systems.product import HOROVODRUN, LAUNCH
from benchmarks.systems.system import add_systems_option
from testbed.cluster import jobs
from testbed.cluster.site import Site, attach, running_or_up
from testbed.kube import cluster as kube
from testbed.kube.errors import DeadlineError

OUT: Final = Path("out/bench-bursts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="bursts of each kind")
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 2, 3], help="asked for at once of the real job")
    add_systems_option(parser, (LAUNCH, HOROVODRUN), default=(LAUNCH,))
    parser.add_argument("--sizes", type=size, nargs="*", default=[(64, 22), (128, 22), (128, 79)], help="WORKERS:PODS")
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")
    flags = parser.parse_args()
    if wrong := [gpus for gpus in flags.gpus if not 0 < gpus < real_nodes.SIZE]:
        parser.error(f"--gpus {wrong[0]}: the real job of {real_nodes.SIZE} can give 1 to {real_nodes.SIZE - 1}")
    broken: list[str] = []
    if not flags.recorded:
        running, ours = running_or_up()
        try:
            site = attach(running)
            jobs.priority_classes(site)
            broken = measure(site, flags)
        finally:
            if ours:
                kube.down()
    report(last_measured(OUT, Measured.from_json), broken)


def size(text: str) -> tuple[int, int]:
    """Workers, and pods of inference. Raises ValueError."""
    workers, pods = map(int, text.split(":"))
    if workers % 8 or not 0 < pods < workers:
        raise ValueError
    return workers, pods


def measure(site: Site, flags: argparse.Namespace) -> list[str]:
    """Measure and keep all that was asked for; returns what did not come to its end, and why."""
    broken: list[str] = []

    def attempt(what: str, measured: Callable[[], list[Measured]]) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
        try:
            for one in measured():
                one.keep(OUT)
        except (AssertionError, DeadlineError) as error:
            broken.append(f"{what}: {str(error).splitlines()[0]}")
            print(f"  {broken[-1]}", flush=True)

    for system in flags.systems:
        for gpus in flags.gpus:
            attempt(f"{system.name}, {gpus} GPUs", partial(real_nodes.measure, site, system, gpus, flags.rounds))
    for workers, pods in flags.sizes:
        known = measured_of(product_digest(), OUT, Measured.from_json)
        leaving = Leaving.of(known, launcher=LAUNCH.name, place=real_nodes.place(LAUNCH))
        if leaving is None:
            sys.exit("how long victims take to leave is not known: measure the real job under `launch` first")
        at_size = partial(fake_nodes.measure, leaving=leaving)
        attempt(f"kwok, {workers} workers, {pods} GPUs", partial(at_size, site, workers, pods, flags.rounds))
    return broken


def report(found: Measurements[Measured], broken: Sequence[str]) -> None:
    measured = sorted(found.parts, key=lambda one: one.order)
    record = found.record(name="bursts", question="What does a burst of inference wait for GPUs that training holds?")
    record.add(waiting_table(measured, note="\n".join([*broken, *found.left_out])))
    record.add(parts_table(measured))
    record.promise(*aims(measured))
    record.write()


if __name__ == "__main__":
    main()
