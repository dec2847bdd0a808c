"""Whether `simulate` tells the truth: the same windows on a real cluster and simulated, side by side.

    python -m benchmarks.simulation_truth [--seconds 300] [--windows N] [--systems launch,stock] [--recorded]

The cluster is that of docs/cluster.md, with a real scheduler. Windows of recorded traces (`../shared/traces`, from the
repository's root) are compressed in time, and their nodes scaled to the GPUs of one node of it: at the window's least
one is left to training, at its most all of them. The others are held by inference pods, which preempt real workers. The
same inference pods are simulated, with the stalls of benchmarks/cluster.py, none of which comes from these runs, and
with the step times of the run itself, because they are the job's and not the simulator's. Aims: goodput within 5%,
inference waiting p99 within 20%. Writes out/bench-simulation-truth/, of which `--recorded` simulates anew what was
measured before.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.replay.cluster_window import measure
from benchmarks.replay.measured_window import Measured, step_seconds, useful
from benchmarks.replay.trace_window import BAMBOO_WINDOWS, PARCAE_WINDOWS, SIZE, TRACES, AskedGpus
from benchmarks.replay.window_options import measured_before
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from benchmarks.systems.product import LAUNCH
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import add_systems_option
from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.stalls import MEASURED
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way
from hvd_elastic.policy.job_demand import Speeds
from testbed.cluster import jobs
from testbed.cluster.site import attach, running_or_up
from testbed.cluster.training import Account
from testbed.kube import cluster as kube

BATCH: Final = 60
"""Samples of a step of the script that trains (testbed/cluster/scripts/paced.py)."""
LEAD_SECONDS: Final = 60.0
"""Simulated before the window, so that the job trains on all GPUs when it begins, as the real one does."""
OUT: Final = Path("out/bench-simulation-truth")
WINDOWS: Final = (*PARCAE_WINDOWS, *BAMBOO_WINDOWS)
SYSTEMS: Final = (LAUNCH, STOCK)
WAYS: Final = {LAUNCH.name: Way.OURS, STOCK.name: Way.STOCK}
GOODPUT_AIM: Final = 0.05
WAITING_AIM: Final = 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One window with one system: what was predicted, and what was measured."""

    window: str
    system: str
    predicted_goodput: float
    goodput: float
    predicted_repeated: int
    repeated: int
    pods: int
    """Of inference, that came to run."""

    @property
    def met(self) -> bool:
        """Whether the aim is met."""
        return abs(self.predicted_goodput - self.goodput) <= GOODPUT_AIM


def main() -> None:
    """Replay and simulate all windows, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="that a window takes here")
    parser.add_argument("--windows", type=int, default=len(WINDOWS))
    add_systems_option(parser, SYSTEMS, default=(LAUNCH,))
    parser.add_argument("--recorded", action="store_true", help="measure nothing, compare what was measured before")
    flags = parser.parse_args()
    if flags.recorded:
        report(measured_before(OUT)[0])
        return
    if not TRACES.is_dir():
        print(f"skipped: the recorded traces are not in {TRACES}")
        return
    found: list[Measured] = []
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        for number, window in enumerate(WINDOWS[: flags.windows], 1):
            for system in flags.systems:
                print(f"{time.strftime('%H:%M:%S')} window {number}: {window.name}, {system.name}", flush=True)
                found.append(measure(site, system, window, flags.seconds, OUT))
                print(f"  {asdict(compare(found[-1]))}", flush=True)
        report(found)
    finally:
        if ours:
            kube.down()


def compare(measured: Measured) -> Compared:
    """Predict what was measured."""
    before, predicted = (predict([measured], seconds) for seconds in (0.0, measured.seconds))
    given = predicted.given - before.given
    return Compared(
        window=measured.window,
        system=measured.system,
        predicted_goodput=(predicted.useful - before.useful) / given,
        goodput=useful(measured.steps, step_seconds(measured.steps)) / given,
        predicted_repeated=sum(each.repeated_steps for each in predicted.jobs),
        repeated=len(Account(events=tuple(measured.steps)).repeated()),
        pods=len(measured.waits),
    )


def predict(windows: Sequence[Measured], seconds: float) -> DayOutcome:
    """So many seconds of each window, simulated one after the other, each after a lead without inference."""
    way, steps = WAYS[windows[0].system], step_seconds(windows[0].steps)
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
    asks: list[AskedGpus] = []
    for number, window in enumerate(windows):
        begins = number * (LEAD_SECONDS + seconds)
        inside = [ask for ask in window.asks if ask["second"] < seconds]
        asks += [AskedGpus(second=begins, gpus=0)]
        asks += [AskedGpus(second=begins + LEAD_SECONDS + ask["second"], gpus=ask["gpus"]) for ask in inside]
    ends = len(windows) * (LEAD_SECONDS + seconds)
    node = NodeLife(name="spot", gpus=SIZE)
    pods = tuple(inference_pods(asks, ends, MEASURED[way]))
    day = Day(source="compressed windows", seconds=ends, nodes=(node,), pods=pods)
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


def report(measured: Sequence[Measured]) -> None:
    """Predicted beside measured: goodput of each window, waiting over all windows of a system."""
    record = Record(name="simulation_truth", question="Does the simulator tell the truth?")
    shares = (Column(title="predicted", format=".1%"), Column(title="measured", format=".1%"))
    seconds = (Column(title="predicted", format=".2f"), Column(title="measured", format=".2f"))
    record.add(
        Table(
            name="simulation-truth-goodput",
            title="Goodput and repeated steps of replayed windows on a real cluster",
            columns=(
                Column(title="window"),
                Column(title="system"),
                *shares,
                Column(title=f"within {GOODPUT_AIM:.0%}"),
                Column(title="steps repeated, predicted"),
                Column(title="measured"),
                Column(title="pods of inference"),
            ),
            rows=[_goodput_row(compare(one)) for one in measured],
        )
    )
    record.add(
        Table(
            name="simulation-truth-waiting",
            title="Seconds that inference waits, over all windows",
            columns=(
                Column(title="system"),
                *(Column(title=f"p50, {column.title}", format=column.format) for column in seconds),
                *(Column(title=f"p99, {column.title}", format=column.format) for column in seconds),
                Column(title=f"within {WAITING_AIM:.0%}"),
                Column(title="pods, predicted"),
                Column(title="measured"),
            ),
            rows=[
                _waiting_row([one for one in measured if one.system == system])
                for system in dict.fromkeys(one.system for one in measured)
            ],
        )
    )
    apart = max(abs(found.predicted_goodput - found.goodput) for found in map(compare, measured))
    what = "how far simulated goodput is from measured, the worst window"
    record.promise(Aim(what=what, bound=GOODPUT_AIM, measured=apart, format=".1%"))
    record.write()


def _goodput_row(one: Compared) -> list[Value]:
    goodputs = (one.predicted_goodput, one.goodput, "yes" if one.met else "no")
    return [one.window, one.system, *goodputs, one.predicted_repeated, one.repeated, one.pods]


def _waiting_row(windows: Sequence[Measured]) -> list[Value]:
    """Of all windows with one system: of the few pods of a single one, p99 is the slowest."""
    predicted = predict(windows, windows[0].seconds).inference
    seen = InferenceRecord([wait for one in windows for wait in one.waits]).waiting()
    met = abs(predicted.p99 - seen.p99) <= WAITING_AIM * seen.p99
    quantiles = (predicted.p50, seen.p50, predicted.p99, seen.p99)
    return [windows[0].system, *quantiles, "yes" if met else "no", predicted.pods, seen.pods]


if __name__ == "__main__":
    main()
