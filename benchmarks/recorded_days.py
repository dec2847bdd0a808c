"""Goodput over windows of recorded days on a real cluster: the product beside what people use instead.

    python -m benchmarks.recorded_days [--seconds 240 | --real-time] [--windows 8 | held-out | real-time | NAME,NAME]
                                       [--resume | --recorded]
                                       [--systems launch,launch-torch,horovodrun,elastic-kueue,stock,torchelastic,kueue]

Which windows there are, benchmarks/replay/trace_window.py says; inference pods replay them as in
benchmarks/simulation_truth.py. Each system trains the same small network on the same digits, in steps of at least 50
ms, 20 samples for each of three workers.

- *launch*, *horovodrun*: the product with its two launchers, a commit each step.
- *elastic-kueue*: the product in a queue of the real Kueue, which admits and takes back each worker by itself. Its
  inference is queued too, and preempts nobody by its class.
- *stock*: the MPI Operator's own discover_hosts.sh with plain `horovodrun`, a commit each step.
- *torchelastic*: an elastic PyTorchJob under the real training-operator 1.8, torchrun with the c10d rendezvous, a
  checkpoint on the shared volume each ten steps, from which all go on after each change. Pods restart on failure.
- *kueue*: a job of fixed size in a queue of the same Kueue, whose quota inference takes back. Kueue evicts the job
  whole, and admits it again once all its GPUs are free; it goes on from its checkpoint on the shared volume.

In real time two windows are played at once, each on a node of its own.

Goodput is the GPU-time of the steps that were kept, each at the mean time of its size in the same run without pauses,
as a share of the GPU-time that the window leaves to training. Samples are wrong that an epoch did not use, or used more
than once. A pause is a time without a step of more than three steps. `--recorded` measures nothing, and shows what was
measured before of one source of the product; `--resume` measures what that lacks.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from typing import Final

from benchmarks.replay.cluster_window import NODES, measure
from benchmarks.replay.measured_window import Measured, goodput, pauses, repeated
from benchmarks.replay.trace_window import SIZE, TRACES, WINDOWS, TraceWindow
from benchmarks.replay.window_options import add_window_options, is_measured, measured_before, seconds_of
from benchmarks.replay.window_picture import lane, window_picture
from benchmarks.replay.window_tables import GOODPUT_AIM, goodput_aims, row, system_table, window_table
from benchmarks.report.record import Record
from benchmarks.systems.product import HOROVODRUN, LAUNCH, LAUNCH_TORCH
from benchmarks.systems.queued import ELASTIC_KUEUE, KUEUE
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import System, add_systems_option
from benchmarks.systems.torchelastic import TORCHELASTIC
from testbed.cluster import jobs
from testbed.cluster.site import Site, attach, running_or_up
from testbed.kube import cluster as kube
from testbed.kube.errors import DeadlineError

OUT: Final = Path("out/bench-recorded-days")
_AIMS: Final = {each.name: GOODPUT_AIM for each in (LAUNCH, LAUNCH_TORCH, HOROVODRUN)} | {ELASTIC_KUEUE.name: 0.95}
"""In a queue a worker waits for its quota before it waits for a GPU."""
CONTENDERS: Final = (LAUNCH, LAUNCH_TORCH, HOROVODRUN, ELASTIC_KUEUE, STOCK, TORCHELASTIC, KUEUE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_window_options(parser, WINDOWS)
    add_systems_option(parser, CONTENDERS)
    flags = parser.parse_args()
    if flags.recorded:
        report(*measured_before(OUT))
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
        for system in flags.systems:
            with system.installed(site):
                windows = [each for each in flags.windows if not is_measured(OUT, flags, each, system.name)]
                found += played(site, system, windows, flags, broken)
        report(found, broken)
    finally:
        if ours:
            kube.down()


def played(
    site: Site, system: System, windows: Sequence[TraceWindow], flags: argparse.Namespace, broken: list[str]
) -> list[Measured]:
    """Replay windows one after the other, in real time on each node one; adds what did not end well to `broken`."""
    free = LifoQueue[str]()  # one after the other are all on the same node
    for node in reversed(NODES):
        free.put(node)

    def play(window: TraceWindow) -> Measured | None:
        node = free.get()
        print(f"{time.strftime('%H:%M:%S')} {window.name}: {system.name}", flush=True)
        try:
            found = measure(site, system, window, seconds_of(window, flags), OUT, node=node)
        except DeadlineError as error:
            broken.append(f"{window.name}, {system.name}: {str(error).splitlines()[0]}")
            return None
        finally:
            free.put(node)
        print(f"  {row(found)}", flush=True)
        return found

    if not flags.real_time or system.serving_queue:  # its quota is that of one node
        return [found for found in map(play, windows) if found]
    with ThreadPoolExecutor(len(NODES)) as pool:
        return [found for found in pool.map(play, windows) if found]


def report(measured: Sequence[Measured], broken: Sequence[str]) -> None:
    """Each window with each system, and each system over all windows."""
    record = Record(name="recorded_days", question="What do recorded days leave of the GPUs, on a real cluster?")
    record.add(window_table("recorded-days", measured, broken))
    record.add(system_table("recorded-days-systems", measured))
    record.promise(*goodput_aims(measured, _AIMS))
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
