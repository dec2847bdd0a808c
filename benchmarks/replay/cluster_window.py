"""A window replayed on a real cluster, by inference pods that preempt workers, and what its job has told."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.replay.measured_window import Measured
from benchmarks.replay.sample_account import sample_account
from benchmarks.replay.trace_window import SIZE, AskedGpus, TraceWindow, asked, trace_of
from benchmarks.systems.system import SPOT, System, WantedJob
from hvd_elastic.local.demo.demo_data import read_digits
from testbed.cluster import inference
from testbed.cluster.inference import Inference
from testbed.cluster.pod_lives import pod_lives
from testbed.cluster.site import Site, make_namespace, remove_namespace, told
from testbed.cluster.timeline import Timeline

START_SECONDS: Final = 240.0
"""The operator's own list of hosts may take minutes to name all workers."""


def measure(site: Site, system: System, window: TraceWindow, seconds: float, folder: Path) -> Measured:
    """Replay the window in so many seconds, and keep what was measured in the folder.

    Raises DeadlineError if the job does not come to train on all GPUs before the window.
    """
    asks = asked(trace_of(window), window, seconds)
    spot = site.local().nodes["spot"]
    spot.set_gpus(site.kubectl, SIZE)
    name = f"replay-{system.name}"
    kubectl = make_namespace(site, name)
    timeline = Timeline(kubectl, folder / f"{window.name}-{system.name}-{seconds:.0f}s".lower())
    timeline.start()
    try:
        load = inference.deploy(site, kubectl, queue=system.serving_queue, priority_class=system.serving_class)
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
    until = begin + seconds
    samples = sample_account((event for event in account.events if event["time"] < until), len(read_digits()[1]))
    measured = Measured(
        window=window.name,
        system=system.name,
        seconds=seconds,
        began=begin,
        asks=[asdict(ask) for ask in asks],
        steps=[step for step in account.steps if begin <= step["time"] < until],
        waits=sorted(_waiting(timeline)),
        epochs=samples.epochs,
        samples_wrong=samples.wrong if samples.epochs else None,
    )
    measured.keep(folder)
    return measured


def _replay(load: Inference, asks: Sequence[AskedGpus], begin: float) -> None:
    """Ask for GPUs, and give them back, when the window does."""
    for ask in asks:
        time.sleep(max(0.0, begin + ask.second - time.time()))
        load.scale(ask.gpus)


def _waiting(timeline: Timeline) -> Iterator[float]:
    """Of each inference pod that came to run, from its creation on, as the API server told of it."""
    lives = pod_lives(seen for seen in timeline.pods if seen.pod.startswith("inference"))
    return (life.wait for life in lives if life.wait is not None)
