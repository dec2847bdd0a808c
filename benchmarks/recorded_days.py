"""Goodput over windows of recorded days on a real cluster: the product beside what people use instead.

    python -m benchmarks.recorded_days [--seconds 240] [--windows 8 | --windows NAME,NAME] [--recorded]
                                       [--systems launch,horovodrun,stock,torchelastic,kueue]

Which windows there are, benchmarks/replay/trace_window.py says; inference pods replay them as in
benchmarks/simulation_truth.py. Each system trains the same small network on the same digits, in steps of at least 50
ms, 20 samples for each of three workers.

- *launch*, *horovodrun*: the product with its two launchers, a commit each step.
- *stock*: the MPI Operator's own discover_hosts.sh with plain `horovodrun`, a commit each step.
- *torchelastic*: an elastic PyTorchJob under the real training-operator 1.8, torchrun with the c10d rendezvous, a
  checkpoint on the shared volume each ten steps, from which all go on after each change. Pods restart on failure.
- *kueue*: a job of fixed size in a queue of the real Kueue 0.14, whose quota inference takes back. Kueue evicts the job
  whole, and admits it again once all its GPUs are free; it goes on from its checkpoint on the shared volume.

Goodput is the GPU-time of the steps that were kept, each at the mean time of its size in the same run without pauses,
as a share of the GPU-time that the window leaves to training. Samples are wrong that an epoch did not use, or used more
than once. A pause is a time without a step of more than three steps. `--recorded` measures nothing, and shows what was
measured before.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.cluster import SYSTEMS, System, WantedJob
from benchmarks.replay.cluster_window import measure
from benchmarks.replay.measured_window import Measured, goodput, kept, pauses, repeated
from benchmarks.replay.trace_window import SIZE, TRACES, WINDOWS, chosen_windows
from benchmarks.replay.window_picture import lane, window_picture
from benchmarks.replay.window_tables import goodput_aims, row, system_table, window_table
from benchmarks.report.record import Record
from tests.cluster import jobs, queues, torchelastic
from tests.cluster.faults import STANDBY
from tests.cluster.jobs import Job
from tests.cluster.kube import cluster as kube
from tests.cluster.kube import trainingoperator
from tests.cluster.kube.errors import DeadlineError
from tests.cluster.kube.kubectl import Kubectl
from tests.cluster.site import Site, attach, running_or_up

OUT: Final = Path("out/bench-recorded-days")


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
        [*jobs.PACED, "--log-samples"],
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
    parser.add_argument("--windows", type=chosen_windows, default=WINDOWS, help="how many, or their names")
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
                for window in flags.windows:
                    print(f"{time.strftime('%H:%M:%S')} {window.name}: {system.name}", flush=True)
                    try:
                        found.append(measure(site, system, window, flags.seconds, OUT))
                        print(f"  {row(found[-1])}", flush=True)
                    except DeadlineError as error:
                        broken.append(f"{window.name}, {system.name}: {str(error).splitlines()[0]}")
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
    record.add(window_table("recorded-days", measured, broken))
    record.add(system_table("recorded-days-systems", measured))
    record.promise(*goodput_aims(measured, systems=("launch", "horovodrun")))
    for window in dict.fromkeys(one.window for one in measured):
        picture = drawn([one for one in measured if one.window == window])
        record.pictures[window] = picture
        (OUT / f"{window}.svg").write_text(picture)
    record.write()


def drawn(window: Sequence[Measured]) -> str:
    """One window with each system, ours above what others use."""
    names = {each.name: each.title.replace("`", "") for each in CONTENDERS}
    ordered = sorted(window, key=lambda one: list(names).index(one.system))
    lanes = [lane(one, name=names[one.system], caption=_caption(one)) for one in ordered]
    title = f"{SIZE} GPUs over a window of recorded spot capacity ({window[0].window})"
    return window_picture(lanes, title=title, seconds=window[0].seconds, gpus=SIZE)


def _caption(one: Measured) -> str:
    pause = f"longest pause {max(pauses(one), default=0.0):.1f} s"
    return f"used {goodput(one):.1%} of what inference left, {repeated(one)} steps repeated, {pause}"


if __name__ == "__main__":
    main()
