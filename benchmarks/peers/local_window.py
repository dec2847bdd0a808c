"""A window replayed on this machine: hosts are taken when inference asks for GPUs, and given back when it has done."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.peers.inference_demand import InferenceDemand
from benchmarks.peers.local_system import EVENTS, LocalSystem, NeverTrainedError, Places
from benchmarks.replay.measured_window import Measured
from benchmarks.replay.sample_account import sample_account
from benchmarks.replay.trace_window import SIZE, AskedGpus
from hvd_elastic.local.demo.demo_data import read_digits
from testbed.cluster.training import Account

START_SECONDS: Final = 240.0
"""In which all hosts must train. Four processes may import torch at once, each for seconds of a core."""
LEAD_STEPS: Final = 20
"""Of all hosts, before the window begins."""
LOOK_SECONDS: Final = 0.02


def replay(system: LocalSystem, window: str, asks: Sequence[AskedGpus], seconds: float, folder: Path) -> Measured:
    """Replay the GPUs asked for in a window, in so many seconds.

    Raises NeverTrainedError, and CalledProcessError and OSError if what the system needs cannot be installed.
    """
    (folder / EVENTS).mkdir(parents=True)
    demand = InferenceDemand()
    with system.start(folder, SIZE) as places:
        wait_trained(places, folder)
        began, begin = time.time(), time.monotonic()
        for ask in asks:
            _tend(places, demand, begin + ask.second)
            demand.ask(ask.gpus, time.monotonic())
            places.want(SIZE - ask.gpus)
        _tend(places, demand, begin + seconds)
        demand.ask(0, begin + seconds)
    until = began + seconds
    events = [event for event in Account.read(folder / EVENTS).events if event["time"] < until]
    samples = sample_account(events, len(read_digits()[1]))
    steps = [step for step in Account(events=tuple(events)).steps if step["time"] >= began]
    return Measured(
        window=window,
        system=system.name,
        seconds=seconds,
        began=began,
        asks=[asdict(ask) for ask in asks],
        steps=[{name: step[name] for name in ("time", "step", "size")} for step in steps],
        waits=sorted(demand.waits),
        epochs=samples.epochs,
        samples_wrong=samples.wrong if samples.epochs else None,
    )


def wait_trained(places: Places, folder: Path, size: int = SIZE) -> None:
    """Wait until the job has done some steps at this size. Raises NeverTrainedError."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        places.tend(time.monotonic())
        steps = Account.read(folder / EVENTS).steps
        if len(steps) >= LEAD_STEPS and all(step["size"] == size for step in steps[-LEAD_STEPS:]):
            return
        time.sleep(0.2)
    raise NeverTrainedError(f"it did not train on {size} hosts within {START_SECONDS:g} s: see {folder}")


def _tend(places: Places, demand: InferenceDemand, until: float) -> None:
    while (now := time.monotonic()) < until:
        places.tend(now)
        demand.take(SIZE - places.held, now)
        time.sleep(LOOK_SECONDS)
