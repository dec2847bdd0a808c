"""What happened in a window: replayed on a real cluster, and read from the account of the training."""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import SPOT, System, WantedJob
from benchmarks.replay.trace_window import SIZE, AskedGpus, TraceWindow, asked, trace_of
from tests.cluster import inference
from tests.cluster.inference import Inference
from tests.cluster.site import Site, make_namespace, remove_namespace, told
from tests.cluster.timeline import Timeline

START_SECONDS: Final = 240.0
"""The operator's own list of hosts may take minutes to name all workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What happened in one window with one system."""

    window: str
    system: str
    seconds: float
    """How long it took."""
    began: float = 0.0
    """Unix seconds."""
    asks: list[dict[str, Any]]
    """Fields of AskedGpus."""
    steps: list[dict[str, Any]]
    waits: list[float]
    """Of the inference pods that came to run, sorted."""

    def keep(self, folder: Path) -> None:
        """Write it into a file, for `kept`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.window}-{self.system}.measured.json".lower()).write_text(json.dumps(asdict(self)))


def kept(folder: Path) -> list[Measured]:
    """What was measured before."""
    return [Measured(**json.loads(path.read_text())) for path in sorted(folder.glob("*.measured.json"))]


def measure(site: Site, system: System, window: TraceWindow, seconds: float, folder: Path) -> Measured:
    """Replay the window in so many seconds, and keep what was measured in the folder.

    Raises DeadlineError if the job does not come to train on all GPUs before the window.
    """
    asks = asked(trace_of(window), window, seconds)
    spot = site.local().nodes["spot"]
    spot.set_gpus(site.kubectl, SIZE)
    name = f"replay-{system.name}"
    kubectl = make_namespace(site, name)
    timeline = Timeline(kubectl, folder / f"{window.trace}-{system.name}".lower())
    timeline.start()
    try:
        load = inference.deploy(site, kubectl, queue=system.serving_queue)
        job = system.submit(site, kubectl, WantedJob(node_labels=SPOT))
        job.wait_size(SIZE, within_seconds=START_SECONDS)
        begin = timeline.mark("the window begins")
        _replay(load, asks, begin)
        time.sleep(max(0.0, begin + seconds - time.time()))
        account = job.account
    finally:
        timeline.stop(told(kubectl))
        remove_namespace(site, name)
        spot.set_gpus(site.kubectl, spot.node.gpus)
    measured = Measured(
        window=window.trace,
        system=system.name,
        seconds=seconds,
        began=begin,
        asks=[asdict(ask) for ask in asks],
        steps=[step for step in account.steps if begin <= step["time"] < begin + seconds],
        waits=sorted(_waiting(timeline)),
    )
    measured.keep(folder)
    return measured


def _replay(load: Inference, asks: Sequence[AskedGpus], begin: float) -> None:
    """Ask for GPUs, and give them back, when the window does."""
    for ask in asks:
        time.sleep(max(0.0, begin + ask.second - time.time()))
        load.scale(ask.gpus)


def step_times(steps: Sequence[dict[str, Any]]) -> dict[int, list[float]]:
    """Seconds from a step to the next by size, of two that follow each other in worlds of one size."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    for first, second in pairwise(steps):
        if first["size"] == second["size"]:
            times[int(first["size"])].append(second["time"] - first["time"])
    return times


def step_seconds(steps: Sequence[dict[str, Any]]) -> dict[int, float]:
    """The mean time of a step by size: the job's speed is its inverse."""
    return {size: statistics.fmean(values) for size, values in step_times(steps).items()}


def useful(steps: Sequence[dict[str, Any]], seconds: Mapping[int, float]) -> float:
    """GPU-seconds of steps that were kept: each counts once, with the seconds of a step of its size."""
    last = {step["step"]: int(step["size"]) for step in steps}
    return sum(size * seconds.get(size, 0.0) for size in last.values())


def _waiting(timeline: Timeline) -> Iterator[float]:
    """Of each inference pod that came to run, from its creation on, as the API server told of it."""
    created: dict[str, float] = {}
    running: dict[str, float] = {}
    for seen in timeline.pods:
        if seen.pod.startswith("inference"):
            created.setdefault(seen.uid, seen.time)
            if seen.phase == "Running":
                running.setdefault(seen.uid, seen.time)
    return (running[uid] - created[uid] for uid in running)
