"""Whether `simulate` tells the truth: the same windows on a real cluster and simulated, side by side.

    python -m benchmarks.simulation_truth [--seconds 300] [--windows N] [--systems launch,stock]

The cluster is that of docs/cluster.md, with a real scheduler. Windows of recorded traces (`../shared/traces`, from the
repository's root) are compressed in time, and their nodes scaled to the GPUs of one node of it: at the window's least
one is left to training, at its most all of them. The others are held by inference pods, which preempt real workers. The
same inference pods are simulated, with the stalls of benchmarks/cluster.py, none of which comes from these runs, and
with the step times of the run itself, because they are the job's and not the simulator's. Aims: goodput within 5%,
inference waiting p99 within 20%. Writes out/bench-simulation-truth/.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.cluster import SYSTEMS, System
from benchmarks.discovery import machine
from benchmarks.simulated_traces import TRACES
from hvd_elastic.policy.job_demand import Speeds
from hvd_elastic.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.simulate.outcome import DayOutcome
from hvd_elastic.simulate.simulation import simulate
from hvd_elastic.simulate.stalls import MEASURED
from hvd_elastic.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.simulate.traces.trace_file import read_traces
from hvd_elastic.simulate.workload import SimulatedJob, Stalls, Way
from tests.cluster import inference, jobs
from tests.cluster.inference import Inference
from tests.cluster.kube import cluster as kube
from tests.cluster.site import Site, attach, make_namespace, remove_namespace, running_or_up, told
from tests.cluster.timeline import Timeline
from tests.cluster.training import Account

SIZE: Final = 3
"""GPUs of the node, and the job's max: as benchmarks/cluster.py has it, which submits the jobs."""
BATCH: Final = 60
"""Samples of a step of the script that trains (tests/cluster/scripts/paced.py)."""
LEAD_SECONDS: Final = 30.0
"""At the beginning all GPUs are idle, so that the job can start."""
OUT: Final = Path("out/bench-simulation-truth")
WAYS: Final = {"stock": Way.STOCK, "launch": Way.OURS}
GOODPUT_AIM: Final = 0.05
WAITING_AIM: Final = 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """Some hours of a trace."""

    file: str
    trace: str
    begins: float = 0.0
    """Hour of the trace."""
    hours: float = 1.0


WINDOWS: Final = (
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_hh_55_65"),
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_hl_15_25"),
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_lh_80_90"),
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_ll_10_11"),
    TraceWindow(file="spot_gcloud_bamboo.csv", trace="gcloud-a100x1-east1b", begins=4.7, hours=6.0),
    TraceWindow(file="spot_bamboo_events.csv", trace="bamboo-p3", begins=0.5, hours=4.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGpus:
    """How many GPUs inference asks for from a second on."""

    second: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One window with one system: what was predicted, and what was measured."""

    window: str
    system: str
    predicted_goodput: float
    goodput: float
    predicted_p50: float
    p50: float
    predicted_p99: float
    p99: float
    pods: int
    predicted_repeated: int
    repeated: int

    @property
    def met(self) -> bool:
        """Whether both aims are met."""
        waits = abs(self.predicted_p99 - self.p99) <= WAITING_AIM * self.p99
        return waits and abs(self.predicted_goodput - self.goodput) <= GOODPUT_AIM


def main() -> None:
    """Replay and simulate all windows, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="that a window takes here")
    parser.add_argument("--windows", type=int, default=len(WINDOWS))
    parser.add_argument("--systems", default="launch")
    flags = parser.parse_args()
    if not TRACES.is_dir():
        print(f"skipped: the recorded traces are not in {TRACES}")
        return
    systems = [system for system in SYSTEMS if system.name in flags.systems.split(",") and system.name in WAYS]
    found: list[Compared] = []
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        for number, window in enumerate(WINDOWS[: flags.windows], 1):
            asks = asked(trace_of(window), window, flags.seconds)
            for system in systems:
                print(f"{time.strftime('%H:%M:%S')} window {number}: {window.trace}, {system.name}", flush=True)
                found.append(compare(site, system, window, asks, flags.seconds))
                print(f"  {asdict(found[-1])}", flush=True)
        report(found)
    finally:
        if ours:
            kube.down()


def trace_of(window: TraceWindow) -> RecordedTrace:
    return next(trace for trace in read_traces(TRACES / window.file).traces if trace.name == window.trace)


def asked(trace: RecordedTrace, window: TraceWindow, seconds: float) -> list[AskedGpus]:
    """What the window does not leave to training, scaled to SIZE GPUs and compressed; only changes, after the lead."""
    begins, length = window.begins * 3600, window.hours * 3600
    moments = sorted({begins, *(moment for node in trace.nodes for moment in (node.since, node.until))})
    inside = [moment for moment in moments if begins <= moment < begins + length]
    counts = [(moment, sum(node.since <= moment < node.until for node in trace.nodes)) for moment in inside]
    least, most = min(count for _, count in counts), max(count for _, count in counts)
    found = [AskedGpus(second=0.0, gpus=0)]
    for moment, count in counts:
        second = LEAD_SECONDS + (moment - begins) / length * seconds
        gpus = SIZE - 1 - round((SIZE - 1) * (count - least) / max(1, most - least))
        if gpus != found[-1].gpus:
            found.append(AskedGpus(second=second, gpus=gpus))
    return found


def compare(site: Site, system: System, window: TraceWindow, asks: Sequence[AskedGpus], seconds: float) -> Compared:
    """Replay the window, then predict it."""
    spot = site.local().nodes["spot"]
    spot.set_gpus(site.kubectl, SIZE)
    name = f"truth-{system.name}"
    kubectl = make_namespace(site, name)
    timeline = Timeline(kubectl, OUT / f"{window.trace}-{system.name}".lower())
    timeline.start()
    try:
        load = inference.deploy(site, kubectl)
        job = system.submit(site, kubectl, {"kubernetes.io/hostname": "spot"}, SIZE)
        begin = timeline.mark("applied")
        replay(load, asks, begin)
        time.sleep(max(0.0, begin + LEAD_SECONDS + seconds - time.time()))
        account = job.account
    finally:
        timeline.stop(told(kubectl))
        remove_namespace(site, name)
        spot.set_gpus(site.kubectl, spot.node.gpus)
    steps = [step for step in account.steps if step["time"] < begin + LEAD_SECONDS + seconds]
    predicted = predict(asks, LEAD_SECONDS + seconds, step_seconds(steps), WAYS[system.name])
    waits = sorted(waiting(timeline))
    return Compared(
        window=window.trace,
        system=system.name,
        predicted_goodput=predicted.goodput,
        goodput=useful(steps) / predicted.given,
        predicted_p50=predicted.inference.p50,
        p50=quantile(waits, 0.5),
        predicted_p99=predicted.inference.p99,
        p99=quantile(waits, 0.99),
        pods=len(waits),
        predicted_repeated=sum(each.repeated_steps for each in predicted.jobs),
        repeated=len(Account(events=tuple(steps)).repeated()),
    )


def replay(load: Inference, asks: Sequence[AskedGpus], begin: float) -> None:
    """Ask for GPUs, and give them back, when the window does."""
    for ask in asks[1:]:
        time.sleep(max(0.0, begin + ask.second - time.time()))
        load.scale(ask.gpus)


def predict(asks: Sequence[AskedGpus], seconds: float, steps: dict[int, float], way: Way) -> DayOutcome:
    """The same by simulation."""
    slowest = max(steps.values())
    job = SimulatedJob(
        name="elastic",
        min=1,
        start=SIZE,
        max=SIZE,
        speeds=Speeds((0.0, *(BATCH / steps.get(size, slowest) for size in range(1, SIZE + 1)))),
        samples_per_step=BATCH,
        checkpoint_every_seconds=None,
    )
    node = NodeLife(name="spot", gpus=SIZE)
    pods = tuple(inference_pods(asks, seconds, MEASURED[way]))
    day = Day(source="a compressed window", seconds=seconds, nodes=(node,), pods=pods)
    return simulate(day, [job], way, MEASURED[way])


def inference_pods(asks: Sequence[AskedGpus], seconds: float, stalls: Stalls) -> Iterator[InferencePod]:
    """The Deployment's pods. Of those that run, its ReplicaSet deletes the youngest.

    The simulator lets a pod run for so long from when it runs; the Deployment ends it at a time, however late it began.
    """
    running: list[float] = []
    ended: list[tuple[float, float]] = []
    for ask in asks:
        while len(running) < ask.gpus:
            running.append(ask.second)
        while len(running) > ask.gpus:
            ended.append((running.pop(), ask.second))
    ended += [(created, seconds + 1) for created in running]
    waits = stalls.gpu_free + stalls.bind
    for number, (created, end) in enumerate(sorted(ended)):
        yield InferencePod(name=f"inference-{number}", gpus=1, created=created, seconds=max(0.1, end - created - waits))


def step_seconds(steps: Sequence[dict[str, object]]) -> dict[int, float]:
    """The median time of a step by size, of two that follow each other in one world."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    for first, second in pairwise(steps):
        if first["size"] == second["size"]:
            times[int(str(second["size"]))].append(float(str(second["time"])) - float(str(first["time"])))
    return {size: statistics.median(values) for size, values in times.items()}


def useful(steps: Sequence[dict[str, object]]) -> float:
    """GPU-seconds of steps that were kept: each counts once, at the median time of its size."""
    times = step_seconds(steps)
    last = {step["step"]: int(str(step["size"])) for step in steps}
    return sum(size * times.get(size, 0.0) for size in last.values())


def waiting(timeline: Timeline) -> Iterator[float]:
    """Of each inference pod that came to run, from its creation on, as the API server told of it."""
    created: dict[str, float] = {}
    running: dict[str, float] = {}
    for seen in timeline.pods:
        if seen.pod.startswith("inference"):
            created.setdefault(seen.uid, seen.time)
            if seen.phase == "Running":
                running.setdefault(seen.uid, seen.time)
    return (running[uid] - created[uid] for uid in running)


def quantile(values: Sequence[float], part: float) -> float:
    """Of sorted values, the nearest one; 0 without any."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def report(found: Sequence[Compared]) -> None:
    """The table on stdout and in a file, the figures beside it."""
    OUT.mkdir(parents=True, exist_ok=True)
    lines = [
        "| predicted / measured | system | goodput | inference waits p50 | p99 | pods | repeated | within the aims |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {one.window} | {one.system} | {one.predicted_goodput:.1%} / {one.goodput:.1%} "
            f"| {one.predicted_p50:.1f} / {one.p50:.1f} s | {one.predicted_p99:.1f} / {one.p99:.1f} s | {one.pods} "
            f"| {one.predicted_repeated} / {one.repeated} | {'yes' if one.met else 'no'} |"
            for one in found
        ),
    ]
    table = "\n".join([machine(), "", *lines, ""])
    print(table)
    (OUT / "table.md").write_text(table)
    (OUT / "figures.json").write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
