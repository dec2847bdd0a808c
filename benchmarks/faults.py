"""What faults cost training on a real cluster: how long it stands still, what is lost, whether it goes on by itself.

    python -m benchmarks.faults [--rounds 10] [--cut-rounds 2] [--faults killed,hung,...] [--systems launch,...]
                                [--patience 120] [--recorded]

The cluster is that of docs/cluster.md. Three workers, 50 ms steps. The product and stock commit each step, and the
product stores a checkpoint each 5 s; TorchElastic has a checkpoint each ten steps, from which it goes on after each
change. Its operator is the real training-operator. One job takes fault after fault as long as it comes back to full
size each time; one that does not within the patience after a fault is over is replaced. What each fault is:
benchmarks/faulted/fault_catalogue.py.

Each round is kept in out/bench-faults/ at once. The table has all that is kept of one source of the product, so that a
fault and a system may be measured at a time; `--recorded` measures nothing.
"""

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.faulted import fault_cost
from benchmarks.faulted.fault_catalogue import FAULTS, MeasuredFault, injected
from benchmarks.faulted.fault_cost import FaultCost
from benchmarks.faulted.fault_rounds import FaultRounds
from benchmarks.faulted.victim import START_SECONDS, Victim, standing
from benchmarks.report.measurements import Measurements, last_measured
from benchmarks.report.record import NEVER, Column, Table, Value, figure, spread
from benchmarks.systems.product import HOROVODRUN, LAUNCH, LAUNCH_TORCH
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import SIZE, System, add_systems_option
from benchmarks.systems.torchelastic import TORCHELASTIC
from testbed.cluster import jobs
from testbed.cluster.site import Site, attach, running_or_up
from testbed.cluster.standing import SAMPLES
from testbed.cluster.training import Account, GrowingAccount
from testbed.kube import cluster as kube
from testbed.kube import waiting
from testbed.kube.errors import ClusterError, DeadlineError
from testbed.kube.kubectl import condition_of

CONTENDERS: Final = (LAUNCH, LAUNCH_TORCH, HOROVODRUN, STOCK, TORCHELASTIC)
EPOCH_SECONDS: Final = 1.5
"""A fault comes in another part of an epoch each round: it matters to who begins epochs anew."""
OUT: Final = Path("out/bench-faults")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cut-rounds", type=int, default=2, help="of faults that cut a node off: some minutes each")
    parser.add_argument("--faults", default=",".join(each.name for each in FAULTS))
    add_systems_option(parser, CONTENDERS)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which what has not come is never")
    parser.add_argument("--recorded", action="store_true", help="measure nothing, show what was measured before")
    flags = parser.parse_args()
    broken: list[str] = []
    if flags.recorded:
        report(last_measured(OUT, FaultRounds.from_json), broken)
        return
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        for system in flags.systems:
            with system.installed(site):
                for fault in (each for each in FAULTS if each.name in flags.faults.split(",")):
                    if system.name in fault.not_for:
                        continue
                    try:
                        rounds = flags.cut_rounds if fault.is_apart else flags.rounds
                        measure(site, system, fault, rounds=rounds, patience=flags.patience)
                    except (AssertionError, ClusterError, DeadlineError) as error:
                        broken.append(f"{fault.name}, {system.name}: {str(error).splitlines()[0]}")
                        print(f"  {broken[-1]}", flush=True)
    finally:
        if ours:
            kube.down()
    report(last_measured(OUT, FaultRounds.from_json), broken)


def measure(site: Site, system: System, fault: MeasuredFault, *, rounds: int, patience: float) -> None:
    """Do it so often; a job that is not whole afterwards is replaced, and each if the fault is rare."""
    costs: list[FaultCost] = []
    while len(costs) < rounds:
        folder = OUT / f"{fault.name}-{system.name}"
        with standing(site, system, folder, apart=fault.is_apart, in_store=fault.in_store) as victim:
            while len(costs) < rounds:
                costs.append(strike(fault, replace(victim, number=len(costs)), patience))
                print(f"{time.strftime('%H:%M:%S')} {fault.name}: {system.name}: {costs[-1]}", flush=True)
                FaultRounds(fault=fault.name, system=system.name, costs=costs).keep(OUT)
                if costs[-1].ended or fault.is_rare:
                    break


def strike(fault: MeasuredFault, victim: Victim, patience: float) -> FaultCost:
    """Once, on a job that trains steadily at full size."""
    watched = GrowingAccount(victim.job.shared / "events")

    def is_whole(since: float) -> bool:
        return fault_cost.is_settled(watched.look().steps, since=since, now=time.time(), sizes=[SIZE])

    began = time.time()
    waiting.until("it trains at full size", lambda: is_whole(began), within_seconds=START_SECONDS)
    time.sleep(random.Random(victim.number).uniform(0, EPOCH_SECONDS))
    struck = victim.timeline.mark(fault.title)
    with injected(fault, victim):
        time.sleep(max(0.0, struck + fault.lasts - time.time()))
    over = victim.timeline.mark("over")
    time.sleep(fault.shows_within)
    waiting.reached(lambda: is_whole(over) or bool(end_of(victim)), patience, every_seconds=1)
    account, now = watched.look(), time.time()
    ended = "" if is_whole(over) else how_it_stands(victim, watched.look(), now)
    return FaultCost.of(account, since=struck, until=now, size=SIZE, samples=SAMPLES, ended=ended)


def how_it_stands(victim: Victim, account: Account, now: float) -> str:
    """Of a job that is not whole."""
    stands = now - account.steps[-1]["time"] > fault_cost.STILL_SECONDS
    return end_of(victim) or ("stands still" if stands else f"goes on with {account.size} of {SIZE}")


def end_of(victim: Victim) -> str:
    """How the job has ended; empty if it has not. Failed without a completion time is no end (Job.require_alive)."""
    job = victim.job.kubectl.get("pytorchjob" if victim.system is TORCHELASTIC else "mpijob", victim.job.name)
    ends = [each for each in ("Failed", "Succeeded") if condition_of(job, each) == "True"]
    return f"the job has {ends[0].lower()}" if ends and "completionTime" in job["status"] else ""


def report(found: Measurements[FaultRounds], broken: Sequence[str]) -> None:
    """One row for each fault and system."""
    record = found.record(name="faults", question="What do faults cost, and does training go on by itself?")
    costs = {(one.fault, one.system): one.costs for one in found.parts}
    pairs = [(fault, system) for fault in FAULTS for system in CONTENDERS]
    wanted = [pair for pair in pairs if (pair[0].name, pair[1].name) in costs or pair[1].name in pair[0].not_for]
    record.add(
        Table(
            name="faults",
            title=f"Faults of a job of {SIZE} workers; seconds",
            columns=COLUMNS,
            rows=[row(fault, system, costs.get((fault.name, system.name), [])) for fault, system in wanted],
            note="\n".join([*broken, *found.left_out]),
        )
    )
    record.write()


COLUMNS: Final = (
    Column(title="fault"),
    Column(title="system"),
    Column(title="rounds"),
    Column(title="stands still, least", format=".2f"),
    Column(title="median", format=".2f"),
    Column(title="p90", format=".2f"),
    Column(title="most", format=".2f"),
    Column(title="whole after, median", format=".1f"),
    Column(title="steps repeated, median", format=".0f"),
    Column(title="most", format=".0f"),
    Column(title="samples wrong, most", format=".0f"),
    Column(title="goes on by itself"),
    Column(title="at full size again"),
    Column(title="else"),
)


def row(fault: MeasuredFault, system: System, costs: Sequence[FaultCost]) -> list[Value]:
    """What the fault cost the system."""
    if not costs:
        return [fault.title, system.name, *[None] * (len(COLUMNS) - 3), fault.not_for[system.name]]
    stalls, whole = [cost.stall for cost in costs], [cost.whole for cost in costs]
    repeated = [cost.repeated for cost in costs]
    least, middle, most = spread(stalls)
    return [
        fault.title,
        system.name,
        len(costs),
        least,
        middle,
        ninetieth(stalls),
        most,
        figure(median(whole)),
        median(repeated),
        max(repeated),
        max(cost.wrong_samples for cost in costs),
        _of(costs, [stall != NEVER for stall in stalls]),
        _of(costs, [one != NEVER for one in whole]),
        "; ".join(sorted({cost.ended for cost in costs if cost.ended})),
    ]


def ninetieth(values: Sequence[float]) -> Value:
    """The 90th percentile, of ten values or more."""
    return figure(sorted(values)[math.ceil(0.9 * len(values)) - 1]) if len(values) >= 10 else None


def _of(costs: Sequence[FaultCost], are: Sequence[bool]) -> str:
    return f"{sum(are)} of {len(costs)}"


if __name__ == "__main__":
    main()
