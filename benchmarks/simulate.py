"""How long a day of a large cluster takes to simulate, and how much memory.

    python -m benchmarks.simulate [--nodes 10000] [--jobs 20] [--copies 3] [--day 10] [--ways ours stock]

Nodes have one GPU. Inference is a day of the recorded DLRM trace (`../shared/traces`, from the repository's root) as
often as `--copies` says, each copy some minutes later, so that inference takes most of the cluster; where the file is
not there, pods of the same number are made up. The aim is 60 s and 2 GiB for one way on one core.
"""

import argparse
import random
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.replay.trace_window import TRACES
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.stalls import MEASURED
from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind, TraceChoice, recorded_day
from hvd_elastic.decide.simulate.workload import SimulatedJob, Way
from hvd_elastic.policy.job_demand import Speeds

TRACE = TRACES / "inference_pods_alibaba_dlrm_gpu.csv"
DAY_SECONDS = 86_400.0


def recorded_pods(day: int) -> Iterator[InferencePod]:
    """Each pod of that day of the trace; those from before it come at 0."""
    choice = TraceChoice(begins=day * DAY_SECONDS, seconds=DAY_SECONDS, nodes=1)
    yield from recorded_day([TRACE], choice, NodeKind(gpus=1_000_000)).pods


def made_up_pods(seed: int) -> Iterator[InferencePod]:
    draw = random.Random(seed)
    for _ in range(3100):
        yield InferencePod(name="", gpus=1, created=0.0, seconds=draw.expovariate(1 / (10 * DAY_SECONDS)))
    for _ in range(200):
        created = draw.uniform(0, DAY_SECONDS)
        yield InferencePod(name="", gpus=1, created=created, seconds=draw.expovariate(1 / (DAY_SECONDS / 4)))


def day_of(nodes: int, pods: Sequence[InferencePod], copies: int, source: str) -> Day:
    """The pods of each copy but the first come 137 s later than those of the one before."""
    asked = [
        replace(pod, name=f"pod-{copy}-{number}", created=pod.created + 137 * copy if pod.created else 0.0)
        for copy in range(copies)
        for number, pod in enumerate(pods)
    ]
    return Day(
        source=source,
        seconds=DAY_SECONDS,
        nodes=tuple(NodeLife(name=f"node-{number}", gpus=1) for number in range(nodes)),
        pods=tuple(sorted(asked, key=lambda pod: pod.created)),
    )


def job(number: int, most: int) -> SimulatedJob:
    speeds = [0.0]
    for workers in range(1, most + 1):
        speeds.append(speeds[-1] + 100 / (1 + workers / most))
    return SimulatedJob(
        name=f"job-{number}",
        begins=60.0 * number,
        min=8,
        start=16,
        max=most,
        speeds=Speeds(tuple(speeds)),
        samples_per_step=1024,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--max", type=int, default=64, help="workers of a job")
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--day", type=int, default=10, help="of the trace, from 0")
    parser.add_argument("--ways", nargs="+", type=Way, default=list(Way))
    options = parser.parse_args()
    recorded = TRACE.exists()
    pods = list(recorded_pods(options.day) if recorded else made_up_pods(options.day))
    source = f"{TRACE.name}, day {options.day}" if recorded else f"made up: {TRACE} is not there"
    day = day_of(options.nodes, pods, options.copies, source)
    jobs = [job(number, options.max) for number in range(options.jobs)]
    record = Record(name="simulate", question="How long does the simulation of a large cluster's day take?")
    rows: list[list[Value]] = []
    for way in options.ways:
        began = time.process_time()
        outcome = simulate(day, jobs, way, MEASURED[way])
        seconds = time.process_time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        resizes = sum(job.resizes for job in outcome.jobs)
        rows.append([way.value, seconds, memory, outcome.goodput, outcome.inference.p99, resizes])
    created = sum(pod.created > 0 for pod in day.pods)
    table = Table(
        name="simulate",
        title=(
            f"{source}; {len(list(day.pods)):,} pods of inference, {created:,} created in the day, {options.nodes:,}"
            f" nodes, {len(jobs)} jobs"
        ),
        columns=(
            Column(title="way"),
            Column(title="CPU seconds", format=".1f"),
            Column(title="most memory, GiB", format=".2f"),
            Column(title="goodput", format=".4f"),
            Column(title="inference waits p99, s", format=".2f"),
            Column(title="resizes", format=",d"),
        ),
        rows=rows,
    )
    record.add(table)
    seconds, gib = (max(table.figures(title)) for title in ("CPU seconds", "most memory, GiB"))
    record.promise(
        Aim(what="CPU seconds to simulate a day, the slowest way", bound=60, measured=seconds),
        Aim(what="GiB to simulate a day", bound=2, measured=gib),
    )
    record.write()


if __name__ == "__main__":
    main()
