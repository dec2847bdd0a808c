"""What a preemption, a dead process and a lost node cost on a real cluster: today's stock, and the product.

    make bench-cluster          python -m benchmarks.cluster [--rounds N] [--systems stock,horovodrun,launch]

The cluster is that of docs/cluster.md: a real scheduler preempts a worker for an inference pod. Three
workers, 50 ms steps, a commit each step. Stock is the MPI Operator's own discover_hosts.sh, plain `horovodrun`, sshd as
the workers' process (benchmarks/systems/stock.py). Each round is a job of its own. Writes out/bench-cluster/.
"""

import argparse
import contextlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.report.aim import Aim
from benchmarks.report.record import NEVER, Column, Record, Table, spread, spread_columns
from benchmarks.systems.product import HOROVODRUN, LAUNCH
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import SIZE, SPOT, System, WantedJob, add_systems_option
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs
from testbed.cluster.faults import kill_training
from testbed.cluster.inference import Inference
from testbed.cluster.jobs import Job
from testbed.cluster.pods import OLD_SECONDS, pod, wait_for_any_moment, wait_ready
from testbed.cluster.site import Site, attach, make_namespace, remove_namespace, running_or_up, told
from testbed.cluster.timeline import Timeline
from testbed.kube import cluster as kube
from testbed.kube import store, waiting
from testbed.kube.errors import DeadlineError
from testbed.kube.kubectl import Kubectl

SYSTEMS: Final = (STOCK, HOROVODRUN, LAUNCH)
ASKS: Final = 3
"""How often inference asks in each round, of each kind."""
GROWS_SECONDS: Final = 60.0
"""A job that has not grown back so long after it could is said never to."""
LOST_SECONDS: Final = 90.0
REPLACED_SECONDS: Final = 240.0
"""Kubernetes takes 40 s to see that a node is lost, then come tolerations and grace."""
STILL_SECONDS: Final = 1.0
OUT: Final = Path("out/bench-cluster")


@dataclass(slots=True, kw_only=True)
class Found:
    """What one system was seen to do: seconds (or counts) of each round, by row of the table."""

    title: str
    rows: dict[str, list[float]] = field(default_factory=dict)
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """World size over the last round, seconds since the job was applied."""
    marks: list[tuple[float, str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Scenarios that did not come to their end, and why."""

    def add(self, row: str, value: float | None) -> None:
        """Note a round's figure; None: it never came."""
        self.rows.setdefault(row, []).append(NEVER if value is None else value)


def main() -> None:
    """Measure all systems in turn, round by round, and write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    add_systems_option(parser, SYSTEMS)
    flags = parser.parse_args()
    wanted: list[System] = flags.systems
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        found = {system.name: Found(title=system.title) for system in wanted}
        for number in range(flags.rounds):
            for system in wanted:
                attempt(f"sponge, round {number + 1} of {flags.rounds}", sponge, site, system, found[system.name])
        for system in wanted:
            attempt("lost node", lost_node, site, system, found[system.name])
        report(found)
    finally:
        if ours:
            kube.down()


Scenario = Callable[[Site, System, Found], None]


def attempt(what: str, scenario: Scenario, site: Site, system: System, found: Found) -> None:
    """Let a system through a scenario; one in which it dies or stands still is a result, too."""
    print(f"{time.strftime('%H:%M:%S')} {what}: {system.name}", flush=True)
    try:
        scenario(site, system, found)
    except (AssertionError, DeadlineError) as error:
        found.broken.append(f"{what}: {system.name}: {str(error).splitlines()[0]}")


def sponge(site: Site, system: System, found: Found) -> None:
    """Three GPUs of one node; inference takes one and gives it back; then a training process is killed."""
    spot = site.local().nodes["spot"]
    spot.set_gpus(site.kubectl, SIZE)
    try:
        with namespace(site, f"bench-{system.name}") as (kubectl, timeline):
            load = inference.deploy(site, kubectl)
            applied = timeline.mark("applied")
            job = system.submit(site, kubectl, WantedJob(node_labels=SPOT))
            job.wait_size(SIZE, within_seconds=180)
            found.add("job applied → first step at full size", first_step(job, SIZE) - applied)
            job.wait_steps(20)
            yardsticks(site, kubectl, load, timeline, found)
            for _ in range(ASKS):
                preempt(job, load, timeline, found)
            kill(job, system, timeline, found)
            found.sizes = [(step["time"] - applied, step["size"]) for step in job.account.steps]
            found.marks = [(mark - applied, what) for mark, what in timeline.marks if mark > applied]
    finally:
        spot.set_gpus(site.kubectl, spot.node.gpus)


def yardsticks(site: Site, kubectl: Kubectl, load: Inference, timeline: Timeline, found: Found) -> None:
    """What inference waits for beside the same training, but without its help: on one more GPU, which is idle at first.

    Then a pod that ends as soon as it is told has that GPU: of equals the scheduler preempts the youngest. The first
    inference pod is left out: it brings its image into the page cache.
    """
    spot = site.local().nodes["spot"]
    spot.set_gpus(site.kubectl, SIZE + 1)
    for row in (None, *["the same, on an idle GPU"] * ASKS):
        ask(load, timeline, found, row)
        give_back(load)
    victim = pod(
        "at-once",
        image=store.PAUSE_IMAGE,
        selector=SPOT,
        gpus=1,
        priority="preemptible-pc",
        grace_seconds=30,
    )
    for _ in range(ASKS):
        kubectl.apply([victim])
        wait_ready(kubectl, "at-once")
        time.sleep(OLD_SECONDS)
        ask(load, timeline, found, "the same, from a pod that ends at once")
        give_back(load)
    spot.set_gpus(site.kubectl, SIZE)


def give_back(load: Inference) -> None:
    """Inference needs no GPU any more."""
    load.scale(0)
    load.wait(0)


def ask(load: Inference, timeline: Timeline, found: Found, row: str | None) -> None:
    """Inference asks for one GPU; note how long it waited, under `row` if there is one."""
    wait_for_any_moment()
    asked = timeline.mark("inference 0 → 1")
    load.scale(1)
    load.wait(1)
    if row:
        found.add(row, created_to_running(timeline, asked))


def preempt(job: Job, load: Inference, timeline: Timeline, found: Found) -> None:
    """Inference 0 → 1 → 0. The worker that goes is at least as old as the pods that end at once."""
    time.sleep(OLD_SECONDS)
    ask(load, timeline, found, "inference pod created → Running")
    job.wait_size(SIZE - 1)
    job.wait_steps(20)
    found.add("stall, shrinking", job.account.stall(SIZE, SIZE - 1))
    found.add("steps repeated or skipped by the preemption", len(job.account.repeated()) + len(job.account.skipped()))
    back = timeline.mark("inference 1 → 0")
    load.scale(0)
    grew = waiting.reached(lambda: job.account.since(back).size == SIZE, GROWS_SECONDS)
    found.add("GPU given back → trains at full size", first_step(job, SIZE, since=back) - back if grew else None)
    if grew:
        job.wait_steps(10)
    found.add("stall, growing", job.account.stall(SIZE - 1, SIZE) if grew else None)


def kill(job: Job, system: System, timeline: Timeline, found: Found) -> None:
    """SIGKILL the training process of one worker."""
    size = job.account.size
    killed = timeline.mark("kill -9")
    for worker in job.pods(Role.WORKER):
        if kill_training(job, worker["metadata"]["name"], system.program):
            break
    on = waiting.reached(lambda: 0 < job.account.since(killed).size < size, LOST_SECONDS)
    found.add("stall, a process killed", job.account.since(killed - 1).stall(size, size - 1) if on else None)


def lost_node(site: Site, system: System, found: Found) -> None:
    """Two workers on one node, one on another whose cable is pulled; later there is a GPU for its replacement.

    Rank 0 is one of the two, which can be nowhere else at first: docs/launcher.md says what becomes of stock
    without it.
    """
    nodes = site.local().nodes
    here, there = nodes["on-demand"], nodes["spot"]
    here.set_gpus(site.kubectl, SIZE - 1)
    there.set_gpus(site.kubectl, 0)
    try:
        with namespace(site, f"bench-{system.name}-lost") as (kubectl, timeline):
            job = system.submit(site, kubectl, WantedJob(node_labels={}, start=SIZE - 1))
            job.wait_size(SIZE - 1, within_seconds=180)
            there.set_gpus(site.kubectl, 1)
            job.wait_size(SIZE, within_seconds=180)
            job.wait_steps(20)
            cut = timeline.mark("cable pulled")
            there.link.set(up=False)
            on = waiting.reached(lambda: job.account.since(cut + 1).size == SIZE - 1, LOST_SECONDS)
            found.add("node lost → training on", first_step(job, SIZE - 1, since=cut) - cut if on else None)
            here.set_gpus(site.kubectl, SIZE)
            replaced = on and waiting.reached(lambda: job.account.since(cut + 1).size == SIZE, REPLACED_SECONDS)
            found.add("node lost → replaced", first_step(job, SIZE, since=cut + 1) - cut if replaced else None)
            there.link.set(up=True)
            site.kubectl.wait("node", "spot", condition="Ready", within_seconds=90)
    finally:
        there.link.set(up=True)
        here.set_gpus(site.kubectl, here.node.gpus)
        there.set_gpus(site.kubectl, there.node.gpus)


@contextlib.contextmanager
def namespace(site: Site, name: str) -> Iterator[tuple[Kubectl, Timeline]]:
    """A namespace for one job, and what happens in it."""
    kubectl = make_namespace(site, name)
    timeline = Timeline(kubectl, OUT / name)
    timeline.start()
    try:
        yield kubectl, timeline
    finally:
        timeline.stop(told(kubectl))
        remove_namespace(site, name)


def first_step(job: Job, size: int, since: float = 0) -> float:
    """When rank 0 first stepped in a world of this size."""
    return float(next(step["time"] for step in job.account.since(since).steps if step["size"] == size))


def created_to_running(timeline: Timeline, since: float) -> float | None:
    """Of the inference pod, as the API server told of it."""
    created = timeline.first(lambda seen: seen.pod.startswith("inference"), since=since)
    running = timeline.first(lambda seen: seen.pod.startswith("inference") and seen.phase == "Running", since=since)
    return running.time - created.time if created and running else None


def report(found: dict[str, Found]) -> None:
    """The table, the picture, and the raw figures in a file."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "figures.json").write_text(json.dumps({name: each.rows for name, each in found.items()}, indent=1))
    record = Record(name="cluster", question="What do a preemption, a dead process and a lost node cost?")
    rows = dict.fromkeys(row for each in found.values() for row in each.rows)
    record.add(
        Table(
            name="cluster",
            title="Seconds on a real cluster",
            columns=(
                Column(title=""),
                *(column for name in found for column in spread_columns(name, format=".2f")),
            ),
            rows=[[row, *(each for one in found.values() for each in spread(one.rows.get(row, [])))] for row in rows],
            note="\n".join(line for each in found.values() for line in each.broken),
        )
    )
    record.pictures["sizes"] = draw(found).read_text()
    record.promise(*aims(found))
    record.write()


LAUNCHERS: Final = ("launch", "horovodrun")
AIMS: Final = {
    "job applied → first step at full size": (("launch",), 8.0),
    "inference pod created → Running": (LAUNCHERS, 3.0),
    "stall, growing": (LAUNCHERS, 0.8),
    "GPU given back → trains at full size": (("launch",), 4.0),
    "steps repeated or skipped by the preemption": (LAUNCHERS, 0.0),
}
"""For a row of the table, which of the product's launchers are to keep to which bound, each time."""


def aims(found: Mapping[str, Found]) -> Iterator[Aim]:
    """The worst that was seen of each figure, beside what was promised."""
    for row, (systems, bound) in AIMS.items():
        for system in systems:
            values = found[system].rows.get(row, []) if system in found else []
            what = f"{row}, {system}" if bound == 0 else f"{row}, seconds, {system}"
            yield Aim(what=what, bound=bound, measured=max(values, default=None), format="g" if bound == 0 else ".2f")


def draw(found: dict[str, Found]) -> Path:
    """World size over the last round of each system; 0 where no step came for STILL_SECONDS."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.2 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    for axis, each in zip(axes, found.values(), strict=True):
        times, sizes = zip(*with_pauses(each.sizes), strict=True)
        axis.step(times, sizes, where="post", color="#1f5fa8")
        for number, (at, what) in enumerate(each.marks):
            axis.axvline(at, color="#d62728", lw=0.8, ls=":")
            axis.text(at, SIZE + 0.1 + 0.4 * number, f" {what}", fontsize=8)
        axis.set(
            title=each.title.replace("`", ""), ylabel="world size", ylim=(-0.2, SIZE + 1.4), yticks=range(SIZE + 1)
        )
    axes[-1].set_xlabel("seconds since the job was applied")
    file = OUT / "sizes.svg"
    figure.savefig(file)
    return file


def with_pauses(sizes: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """The same, with a world of 0 put in wherever training stood still."""
    yield 0.0, 0
    for (at, size), (later, _) in itertools.pairwise([*sizes, (math.inf, 0)]):
        yield at, size
        if STILL_SECONDS < later - at < math.inf:
            yield at, 0


if __name__ == "__main__":
    main()
