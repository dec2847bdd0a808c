"""Goodput over windows of recorded days on this machine: the product beside Ray Train, torchft and torchrun.

    python -m benchmarks.local_days [--seconds 180 | --real-time] [--windows 2 | held-out | real-time | NAME,NAME]
                                    [--systems launch,launch-torch,torchrun,ray-train,torchft] [--resume | --recorded]

The windows are those of `benchmarks.recorded_days`, replayed without Kubernetes: up to three hosts of one worker each,
which are taken as Kubernetes takes pods (SIGTERM, then SIGKILL after 30 s) and started again when the window gives them
back. All train the same small network on the same digits, in steps of at least 50 ms, 20 samples for each of three
workers, and are configured as their own documentation says for workers that come and go: `launch_system.py`,
`torch_systems.py` and `ray_system.py` in benchmarks/peers. Ray and torchft are installed into environments of their
own, once, beside the torch that is installed here; without them the rest is measured.

The figures are those of `benchmarks.recorded_days`. Inference waits until nothing of a host is left, or until it gives
up. All hosts share this machine's cores, so whoever starts a process slows the training of the others.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.peers.launch_system import launch
from benchmarks.peers.local_system import LocalSystem, NeverTrainedError
from benchmarks.peers.local_window import replay
from benchmarks.peers.ray_system import ray_train
from benchmarks.peers.torch_systems import torchft, torchrun
from benchmarks.replay.measured_window import Measured
from benchmarks.replay.trace_window import TRACES, WINDOWS, TraceWindow, asked, trace_of
from benchmarks.replay.window_options import add_window_options, is_measured, seconds_of
from benchmarks.replay.window_tables import GOODPUT_AIM, add_windows, row
from benchmarks.report.measurements import last_measured
from benchmarks.systems.system import add_systems_option
from hvd_elastic.mpijob.contract import Engine

OUT: Final = Path("out/bench-local-days")
SYSTEMS: Final = (
    LocalSystem(name="launch", start=launch),
    LocalSystem(name="launch-torch", start=partial(launch, engine=Engine.TORCH)),
    LocalSystem(name="torchrun", start=torchrun),
    LocalSystem(name="ray-train", start=ray_train),
    LocalSystem(name="torchft", start=torchft),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_window_options(parser, WINDOWS[:2])
    add_systems_option(parser, SYSTEMS)
    flags = parser.parse_args()
    if flags.recorded:
        report([])
        return
    if not TRACES.is_dir():
        print(f"skipped: the recorded traces are not in {TRACES}")
        return
    broken: list[str] = []
    for window in flags.windows:
        for system in flags.systems:
            if is_measured(OUT, flags, window, system.name):
                continue
            print(f"{time.strftime('%H:%M:%S')} {window.name}: {system.name}", flush=True)
            try:
                print(f"  {row(measure(system, window, seconds_of(window, flags)))}", flush=True)
            except NeverTrainedError as error:
                broken.append(f"{window.name}, {system.name}: {error}")
                print(f"  {broken[-1]}", flush=True)
            except (OSError, subprocess.CalledProcessError) as error:
                broken.append(f"skipped: {system.name}, which cannot be installed: {error}")
                print(f"  {broken[-1]}", flush=True)
    report(broken)


def measure(system: LocalSystem, window: TraceWindow, seconds: float) -> Measured:
    """Replay one window, and keep what was measured. Logs stay where it failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-local-days-{system.name}-"))
    measured = replay(system, window.name, asked(trace_of(window), window, seconds), seconds, folder)
    measured.keep(OUT)
    shutil.rmtree(folder)
    return measured


def report(broken: Sequence[str]) -> None:
    """All that was measured of the product as it was last: each window, and each system over all windows."""
    found = last_measured(OUT, Measured)
    record = found.record(
        name="local_days", question="What do recorded days leave of the GPUs, with other elastic systems?"
    )
    notes = [f"All of them with torch {version('torch')}.", *broken, *found.left_out]
    add_windows(record, "local-days", found.parts, {"launch": GOODPUT_AIM}, notes)
    record.write()


if __name__ == "__main__":
    main()
