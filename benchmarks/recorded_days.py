"""Goodput over windows of recorded days on a real cluster: the product beside what people use instead.

    python -m benchmarks.recorded_days [--seconds 180 | --real-time] [--windows 8 | held-out | real-time | NAME,NAME]
                                       [--resume | --recorded]
                                       [--systems launch,launch-torch,horovodrun,elastic-kueue,stock,torchelastic,kueue,
                                                  trainjob]

Which windows there are, benchmarks/replay/trace_window.py says. Their nodes are scaled to the GPUs of one node; those
that a window does not leave to training are held by inference pods, which preempt real workers. Each system trains the
same small network on the same digits, in steps of at least 50 ms, 20 samples for each of three workers.

- *launch*, *horovodrun*: the product with its two launchers, a commit each step.
- *elastic-kueue*: the product in a queue of the real Kueue, which admits and takes back each worker by itself. Its
  inference is queued too, and preempts nobody by its class.
- *stock*: the MPI Operator's own discover_hosts.sh with plain `horovodrun`, a commit each step.
- *torchelastic*: an elastic PyTorchJob under the real training-operator 1.8, torchrun with the c10d rendezvous, a
  checkpoint on the shared volume each ten steps, from which all go on after each change. Pods restart on failure.
- *kueue*: a job of fixed size in a queue of the same Kueue, whose quota inference takes back. Kueue evicts the job
  whole, and admits it again once all its GPUs are free; it goes on from its checkpoint on the shared volume.
- *trainjob*: a TrainJob of fixed size under the real Kubeflow Trainer 2.3 and JobSet, torchrun, with the script of
  *torchelastic*. A worker that goes has the whole set begin again, once all its GPUs are free.

Goodput is the GPU-time of the steps that were kept, each at the mean time of its size in the same run without pauses,
as a share of the GPU-time that the window leaves to training. Samples are wrong that an epoch did not use, or used more
than once. A pause is a time without a step of more than three steps. `--recorded` measures nothing, and shows what was
measured before of one source of the product; `--resume` measures what that lacks.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.replay.cluster_window import measure
from benchmarks.replay.measured_window import Measured, goodput, pauses, repeated
from benchmarks.replay.trace_window import SIZE, TRACES, WINDOWS
from benchmarks.replay.window_options import add_window_options, is_measured, seconds_of
from benchmarks.replay.window_picture import lane, window_picture
from benchmarks.replay.window_tables import GOODPUT_AIM, add_windows, row
from benchmarks.report.measurements import last_measured
from benchmarks.systems.product import HOROVODRUN, LAUNCH, LAUNCH_TORCH
from benchmarks.systems.queued import ELASTIC_KUEUE, KUEUE
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import add_systems_option
from benchmarks.systems.torchelastic import TORCHELASTIC
from benchmarks.systems.trainjob import TRAINJOB
from testbed.cluster import jobs
from testbed.cluster.site import attach, running_or_up
from testbed.kube import cluster as kube
from testbed.kube.errors import DeadlineError

OUT: Final = Path("out/bench-recorded-days")
_AIMS: Final = {each.name: GOODPUT_AIM for each in (LAUNCH, LAUNCH_TORCH, HOROVODRUN)} | {ELASTIC_KUEUE.name: 0.95}
"""In a queue a worker waits for its quota before it waits for a GPU."""
CONTENDERS: Final = (LAUNCH, LAUNCH_TORCH, HOROVODRUN, ELASTIC_KUEUE, STOCK, TORCHELASTIC, KUEUE, TRAINJOB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_window_options(parser, WINDOWS)
    add_systems_option(parser, CONTENDERS)
    flags = parser.parse_args()
    if flags.recorded:
        report([])
        return
    if not TRACES.is_dir():
        print(f"skipped: the recorded traces are not in {TRACES}")
        return
    broken: list[str] = []
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        for system in flags.systems:
            with system.installed(site):
                for window in flags.windows:
                    if is_measured(OUT, flags, window, system.name):
                        continue
                    print(f"{time.strftime('%H:%M:%S')} {window.name}: {system.name}", flush=True)
                    try:
                        found = measure(site, system, window, seconds_of(window, flags), OUT)
                        print(f"  {row(found)}", flush=True)
                    except DeadlineError as error:
                        broken.append(f"{window.name}, {system.name}: {str(error).splitlines()[0]}")
                        print(f"  {broken[-1]}", flush=True)
        report(broken)
    finally:
        if ours:
            kube.down()


def report(broken: Sequence[str]) -> None:
    """All that was measured of the product as it was last: each window, and each system over all windows."""
    found = last_measured(OUT, Measured)
    order = [each.name for each in CONTENDERS]
    measured = sorted(found.parts, key=lambda one: order.index(one.system))
    record = found.record(name="recorded_days", question="What do recorded days leave of the GPUs, on a real cluster?")
    add_windows(record, "recorded-days", measured, _AIMS, [*broken, *found.left_out])
    for window, seconds in dict.fromkeys((one.window, one.seconds) for one in measured):
        name = f"{window}-{seconds:.0f}s"
        record.pictures[name] = drawn([one for one in measured if (one.window, one.seconds) == (window, seconds)])
        (OUT / f"{name}.svg").write_text(record.pictures[name])
    record.write()


def drawn(window: Sequence[Measured]) -> str:
    """One window with each system, ours above what others use."""
    names = {each.name: each.title.replace("`", "") for each in CONTENDERS}
    lanes = [lane(one, name=names[one.system], caption=_caption(one)) for one in window]
    title = f"{SIZE} GPUs over a window of recorded spot capacity ({window[0].window})"
    return window_picture(lanes, title=title, seconds=window[0].seconds, gpus=SIZE)


def _caption(one: Measured) -> str:
    pause = f"longest pause {max(pauses(one), default=0.0):.1f} s"
    return f"used {goodput(one):.1%} of what inference left, {repeated(one)} steps repeated, {pause}"


if __name__ == "__main__":
    main()
