"""Goodput over windows of recorded days on a real cluster: the product beside what people use instead.

    python -m benchmarks.recorded_days [--seconds 240] [--windows 4] [--recorded]
                                       [--systems launch,horovodrun,stock,torchelastic,kueue]

The windows, and how inference pods replay them, are those of benchmarks/simulation_truth.py. Each system trains the
same small network on the same digits, in steps of at least 50 ms, 20 samples for each of three workers.

- *launch*, *horovodrun*: the product with its two launchers, a commit each step.
- *stock*: the MPI Operator's own discover_hosts.sh with plain `horovodrun`, a commit each step.
- *torchelastic*: an elastic PyTorchJob under the real training-operator 1.8, torchrun with the c10d rendezvous, a
  checkpoint on the shared volume each ten steps, from which all go on after each change.
- *kueue*: a job of fixed size in a queue of the real Kueue 0.14, whose quota inference takes back. Kueue evicts the job
  whole, and admits it again once all its GPUs are free; it goes on from its checkpoint on the shared volume.

Goodput is the GPU-time of the steps that were kept, each at the mean time of its size in the same run without pauses,
as a share of the GPU-time that the window leaves to training. `--recorded` measures nothing, and shows what was
measured before.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from benchmarks.cluster import SYSTEMS, System, WantedJob
from benchmarks.replay.measured_window import Measured, kept, measure, step_times, useful
from benchmarks.replay.trace_window import SIZE, TRACES, WINDOWS, AskedGpus, given
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.simulate.engine.inference_record import inference_waiting
from tests.cluster import jobs, queues, torchelastic
from tests.cluster.faults import STANDBY
from tests.cluster.jobs import Job
from tests.cluster.kube import cluster as kube
from tests.cluster.kube import trainingoperator
from tests.cluster.kube.errors import DeadlineError
from tests.cluster.kube.kubectl import Kubectl
from tests.cluster.site import Site, attach, running_or_up

OUT: Final = Path("out/bench-recorded-days")
PAUSE: Final = 3.0
"""A step that takes so many times the median of its size is a pause."""


def torchelastic_job(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    """What users of PyTorch run."""
    return torchelastic.submit(
        site,
        kubectl,
        "torchelastic",
        sizes=(1, wanted.size, wanted.size),
        node_labels=wanted.node_labels,
        options=wanted.options,
        shared=wanted.shared,
    )


TORCHELASTIC: Final = System(
    name="torchelastic",
    title="TorchElastic, training-operator",
    program="scripts/torchelastic.py",
    submit=torchelastic_job,
)


def kueue_job(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    """What cannot change its size: all GPUs or none."""
    queues.open_queues(kubectl)
    description = jobs.describe(
        site,
        kubectl,
        "fixed",
        jobs.PACED,
        workers=jobs.workers((SIZE, SIZE, SIZE)),
        node_labels={**wanted.node_labels},
        queue={"system": "kueue", "name": queues.TRAINING},
        checkpoint={"url": "file:///output/checkpoints", "every": 10},
    )
    return jobs.submit(site, kubectl, description)


KUEUE: Final = System(
    name="kueue",
    title="fixed size, evicted whole by Kueue",
    program=STANDBY,
    submit=kueue_job,
    serving_queue=queues.SERVING,
)
CONTENDERS: Final = (*reversed(SYSTEMS), TORCHELASTIC, KUEUE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0, help="that a window takes here")
    parser.add_argument("--windows", type=int, default=4, help=f"of {len(WINDOWS)}")
    parser.add_argument("--systems", default=",".join(each.name for each in CONTENDERS))
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")
    flags = parser.parse_args()
    if flags.recorded:
        if not kept(OUT):
            sys.exit(f"nothing was measured before: {OUT} has no records")
        report(kept(OUT), [])
        return
    if not TRACES.is_dir():
        print(f"skipped: the recorded traces are not in {TRACES}")
        return
    found: list[Measured] = []
    broken: list[str] = []
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        for system in (each for each in CONTENDERS if each.name in flags.systems.split(",")):
            with installed(site, system):
                for window in WINDOWS[: flags.windows]:
                    print(f"{time.strftime('%H:%M:%S')} {window.trace}: {system.name}", flush=True)
                    try:
                        found.append(measure(site, system, window, flags.seconds, OUT))
                        print(f"  {_row(found[-1])}", flush=True)
                    except DeadlineError as error:
                        broken.append(f"{window.trace}, {system.name}: {str(error).splitlines()[0]}")
        report(found, broken)
    finally:
        if ours:
            kube.down()


@contextmanager
def installed(site: Site, system: System) -> Iterator[None]:
    """What the system needs beside the MPI Operator, or in its place."""
    if system is KUEUE:
        with queues.kueue_with_queues(site, gpus=SIZE):
            yield
    elif system is TORCHELASTIC:
        try:
            trainingoperator.start(site.local())
            yield
        finally:
            trainingoperator.stop(site.local())
    else:
        yield


def report(measured: Sequence[Measured], broken: Sequence[str]) -> None:
    """Each window with each system, and each system over all windows."""
    record = Record(name="recorded_days", question="What do recorded days leave of the GPUs, on a real cluster?")
    record.add(
        Table(
            name="recorded-days",
            title="Windows of recorded spot capacity, compressed in time",
            columns=(Column(title="window"), Column(title="system"), *COLUMNS),
            rows=[[one.window, *_row(one)] for one in sorted(measured, key=lambda one: one.window)],
            note="\n".join(broken),
        )
    )
    record.add(
        Table(
            name="recorded-days-systems",
            title="Over all windows",
            columns=(Column(title="system"), Column(title="windows"), *COLUMNS),
            rows=[
                _all_windows([one for one in measured if one.system == system])
                for system in dict.fromkeys(one.system for one in measured)
            ],
        )
    )
    record.write()


COLUMNS: Final = (
    Column(title="goodput", format=".1%"),
    Column(title="steps repeated"),
    Column(title="longest pause, s", format=".1f"),
    Column(title="inference waits p50, s", format=".2f"),
    Column(title="most, s", format=".2f"),
    Column(title="pods of inference"),
)


def _row(one: Measured) -> list[Value]:
    """The system and its figures."""
    waits = inference_waiting(one.waits, never=0)
    figures = (repeated(one), longest_pause(one), waits.p50, max(one.waits, default=None), len(one.waits))
    return [one.system, goodput(one), *figures]


def _all_windows(windows: Sequence[Measured]) -> list[Value]:
    waits = [wait for one in windows for wait in one.waits]
    figures = (sum(map(repeated, windows)), max(map(longest_pause, windows)))
    share = mean(map(goodput, windows))
    return [
        windows[0].system,
        len(windows),
        share,
        *figures,
        inference_waiting(waits, never=0).p50,
        max(waits, default=None),
        len(waits),
    ]


def goodput(one: Measured) -> float:
    """The share of the window's GPU-time that kept steps have used."""
    return useful(one.steps, _unhindered(one.steps)) / given([AskedGpus(**ask) for ask in one.asks], one.seconds)


def _unhindered(steps: Sequence[dict[str, Any]]) -> dict[int, float]:
    """The mean time of a step by size, of steps that no pause has stretched: a pause must not count as training."""
    times = step_times(steps)
    return {size: mean(one for one in found if one <= PAUSE * median(found)) for size, found in times.items()}


def repeated(one: Measured) -> int:
    """Steps that were done again, each time counted."""
    return len(one.steps) - len({step["step"] for step in one.steps})


def longest_pause(one: Measured) -> float:
    """Seconds without a step, from the begin of the window to its end."""
    times = [one.began, *(float(step["time"]) for step in one.steps), one.began + one.seconds]
    return max(later - earlier for earlier, later in pairwise(times))


if __name__ == "__main__":
    main()
