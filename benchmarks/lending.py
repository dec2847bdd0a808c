"""What users of inference feel of lending: from a request to the first byte of its answer.

    python -m benchmarks.lending [--seconds 900] [--arms "idle GPUs,lent"] [--requests TRACE.csv] [--schedule FILE]
                                 [--node-seconds 210] [--recorded]

On this machine, without Kubernetes: four places stand for the GPUs of a node. Training under `hvd-elastic launch` has
up to three of them, as in `benchmarks.local_days`, at least one. Servers have the others: real processes with seconds
of imports and weights, which answer four requests at a time, each within a second, its first byte after 0.2 s. Fifteen
minutes of recorded arrivals (Azure's conversations, of 2023) ask them, through a queue that holds what finds no place,
as an activator does. How many servers there should be is computed once, by an HPA's rule, and replayed in each arm:

- idle GPUs: one is training's, the others wait for servers;
- lent: training has all that servers do not use, and gives it back when one is called for;
- lent with a reserve: the same, and one GPU beyond is left idle;
- a node is started: GPUs beyond the first ones come after `--node-seconds`.

A kubelet, a scheduler and an image are not in it: from a pod's creation until it runs, see `benchmarks.bursts`. All
processes share this machine's cores, so the servers' own start is longer where training also starts. Writes
out/bench-lending/, which `--recorded` shows; what is not measured again stays.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.lend.arms import ARMS, MOST_SERVERS, Arm
from benchmarks.lend.lent_window import Measured, NeverServedError, replay
from benchmarks.lend.recorded_requests import WINDOW_SECONDS, called_for, recorded_arrivals
from benchmarks.lend.servers import model_server
from benchmarks.peers.launch_system import launch
from benchmarks.peers.local_system import NeverTrainedError
from benchmarks.replay.trace_window import TRACES, AskedGpus
from benchmarks.report.aim import Aim
from benchmarks.report.measurements import Measurements, last_measured
from benchmarks.report.record import Column, Table
from hvd_elastic.decide.simulate.day import NODE_START_SECONDS
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord

OUT: Final = Path("out/bench-lending")
REQUESTS: Final = TRACES / "inference_requests_azure2023_1s.csv"
SERVICE: Final = "conv"
EACH: Final = 2.8
"""Requests a second for which a server is called for: 70% of the four that it can answer."""
RESERVE_AIM: Final = 0.5
"""Seconds of p99 above idle GPUs, with a reserve."""
LENT_AIM: Final = 1.3
"""Without: the 1.0 s that one preemption cost beyond an idle GPU when this was promised, and 0.3 s."""
TRAINING_AIM: Final = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float(WINDOW_SECONDS), help="that are played, at most 900")
    parser.add_argument("--arms", type=chosen, default=ARMS, help="their names, with commas between them")
    parser.add_argument("--requests", type=Path, default=REQUESTS, help="a trace: service, t_s, requests")
    parser.add_argument("--schedule", type=Path, help="a schedule of servers that an earlier run has written")
    parser.add_argument("--node-seconds", type=float, default=NODE_START_SECONDS, help="that a node takes to start")
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")
    flags = parser.parse_args()
    if flags.recorded:
        report(last_measured(OUT, Measured), [])
        return
    if not flags.requests.is_file():
        print(f"skipped: there is no trace {flags.requests}")
        return
    arrivals = recorded_arrivals(flags.requests, SERVICE)
    schedule = (
        read_schedule(flags.schedule)
        if flags.schedule
        else called_for(arrivals, flags.seconds, each=EACH, most=MOST_SERVERS)
    )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "schedule.json").write_text(json.dumps([asdict(ask) for ask in schedule]))
    broken: list[str] = []
    for arm in flags.arms:
        print(f"{time.strftime('%H:%M:%S')} {arm.name}", flush=True)
        try:
            measure(arm, schedule, arrivals, flags.seconds, flags.node_seconds).keep(OUT)
        except (NeverTrainedError, NeverServedError) as error:
            broken.append(f"{arm.name}: {error}")
            print(f"  {broken[-1]}", flush=True)
    report(last_measured(OUT, Measured), [f"Requests: {flags.requests.name}, {SERVICE}.", *broken])


def chosen(text: str) -> list[Arm]:
    """Arms by their names, in their own order. Raises ArgumentTypeError."""
    names = [name.strip() for name in text.split(",")]
    by_name = {arm.name: arm for arm in ARMS}
    if unknown := [name for name in names if name not in by_name]:
        raise argparse.ArgumentTypeError(f"no arm is called {unknown[0]!r}; there are {', '.join(by_name)}")
    return [arm for name, arm in by_name.items() if name in names]


def read_schedule(path: Path) -> list[AskedGpus]:
    """What `schedule.json` of another run holds."""
    return [AskedGpus(**ask) for ask in json.loads(path.read_text())]


def measure(
    arm: Arm, schedule: Sequence[AskedGpus], arrivals: Sequence[float], seconds: float, node_seconds: float
) -> Measured:
    """Play one arm. Logs stay where it failed."""
    folder = Path(tempfile.mkdtemp(prefix="bench-lending-"))
    found = replay(
        arm,
        schedule,
        arrivals,
        seconds,
        folder,
        training=launch,
        serving=model_server(folder),
        node_seconds=node_seconds,
    )
    shutil.rmtree(folder)
    return found


def report(found: Measurements[Measured], notes: Sequence[str]) -> None:
    """All arms, and what became of the aims."""
    order = {arm.name: number for number, arm in enumerate(ARMS)}
    measured = sorted(found.parts, key=lambda one: order[one.arm])
    record = found.record(name="lending", question="What do users of inference feel of GPUs that are lent to training?")
    record.add(table(measured, [*notes, *found.left_out]))
    record.promise(*aims(measured))
    record.write()


def table(measured: Sequence[Measured], notes: Sequence[str]) -> Table:
    """An arm a row."""
    return Table(
        name="lending",
        title="Seconds from a request to the first byte of its answer",
        columns=(
            Column(title="where a server's GPU comes from"),
            Column(title="seconds played", format=".0f"),
            Column(title="requests"),
            Column(title="errors"),
            *(Column(title=title, format=".2f") for title in ("p50", "p99", "most")),
            Column(title="servers added"),
            Column(title="call to GPU, median", format=".2f"),
            Column(title="GPU to Ready, median", format=".2f"),
            Column(title="training's goodput", format=".1%"),
        ),
        rows=[
            [
                *(one.arm, one.seconds, one.requests, len(one.errors)),
                *((waits.p50, waits.p99, waits.max) if one.waits else (None,) * 3),
                len(one.gpu_waits),
                median(one.gpu_waits) if one.gpu_waits else None,
                median(one.starts) if one.starts else None,
                one.goodput,
            ]
            for one in measured
            for waits in [InferenceRecord(one.waits).waiting()]
        ],
        note="\n".join(notes),
    )


def aims(measured: Sequence[Measured]) -> Iterator[Aim]:
    """Of the arms that lend, beside idle GPUs with as many requests. One that lost requests has no p99."""
    whole = {one.arm: one for one in measured if one.waits and not one.errors}
    tails = {name: InferenceRecord(one.waits).waiting().p99 for name, one in whole.items()}
    idle, lent, reserved, _ = (arm.name for arm in ARMS)
    for name, bound in ((reserved, RESERVE_AIM), (lent, LENT_AIM)):
        are_alike = {name, idle} <= whole.keys() and whole[name].requests == whole[idle].requests
        above = tails[name] - tails[idle] if are_alike else None
        yield Aim(what=f"seconds of p99 above idle GPUs, {name}", bound=bound, measured=above)
    for one in measured:
        if one.arm in (lent, reserved):
            what = f"goodput of training, {one.arm}"
            yield Aim(what=what, bound=TRAINING_AIM, measured=one.goodput, is_least=True, format=".1%")


if __name__ == "__main__":
    main()
