"""Is every sample used once, what does a lost host cost, how long does training stand still: of any trainer.

    python -m benchmarks.conformance [--systems launch,launch-torch,torchrun] [--rounds 5] [--patience 120]
    python -m benchmarks.conformance --trainer NAME -- COMMAND ...      yours: the command of one host
    python -m benchmarks.conformance --check FOLDER --samples N         of a log that is there

A trainer is known by its step log alone, whose form benchmarks/conforming/README.md describes. It trains on three hosts
of this machine; the last one is taken as Kubernetes takes a pod, is given back, and is killed and started again.
The systems are those of `benchmarks.local_days`, with the same small network and steps of 50 ms.

Training stands still for the longest time without a step, until it is steady again at the size that is right then.
Samples are wrong that an epoch did not use, or used more than once. All hosts share this machine's cores.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.conforming.commanded_system import commanded_system
from benchmarks.conforming.host_changes import HostChange, changed
from benchmarks.conforming.step_log import StepLogError, read_step_log
from benchmarks.faulted.fault_cost import FaultCost
from benchmarks.local_days import SYSTEMS
from benchmarks.peers.local_system import EVENTS, LocalSystem, NeverTrainedError
from benchmarks.peers.local_window import wait_trained
from benchmarks.replay.sample_account import sample_account
from benchmarks.report.record import Column, Record, Table, Value, figure, spread, spread_columns
from benchmarks.systems.system import add_systems_option
from hvd_elastic.local.demo.demo_data import read_digits
from hvd_elastic.mpijob.contract import Exit

HOSTS: Final = 3
Costs = dict[tuple[str, HostChange], list[FaultCost]]
"""By system."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_systems_option(parser, SYSTEMS, default=SYSTEMS[:3])
    parser.add_argument("--trainer", metavar="NAME", help="measure COMMAND alone, under this name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which what has not come is never")
    parser.add_argument("--samples", type=int, help="of the data set (default: the digits that our systems train on)")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="measure nothing: say what this log proves")
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    flags = parser.parse_args()
    if bool(flags.trainer) != bool(flags.command):
        parser.error("--trainer NAME and its COMMAND go together: --trainer mine -- python train.py")
    samples = flags.samples or len(read_digits()[1])
    if flags.check:
        check(flags.check, samples)
        return
    found: Costs = {}
    broken: list[str] = []
    for system in [commanded_system(flags.trainer, flags.command)] if flags.trainer else flags.systems:
        print(f"{time.strftime('%H:%M:%S')} {system.name}", flush=True)
        try:
            measure(system, found, rounds=flags.rounds, samples=samples, patience=flags.patience)
        except (NeverTrainedError, StepLogError) as error:
            broken.append(f"{system.name}: {error}")
        except (OSError, subprocess.CalledProcessError) as error:
            broken.append(f"skipped: {system.name}, which cannot be installed: {error}")
    report(found, broken)


def check(folder: Path, samples: int) -> None:
    """Say what a log proves; exit code 2 where it is none, 1 where a sample was not used once."""
    try:
        log = read_step_log(folder, samples=samples)
    except StepLogError as error:
        print(error, file=sys.stderr)
        sys.exit(Exit.BAD_INPUT)
    account = sample_account(log.events, samples)
    print(
        f"{len(log.steps)} steps, {len(log.repeated())} places where it went back, {len(log.skipped())} steps skipped"
    )
    print(f"{account.epochs} epochs have ended; samples left out or used more than once: {account.wrong}")
    sys.exit(1 if account.wrong or log.skipped() else 0)


def measure(system: LocalSystem, found: Costs, *, rounds: int, samples: int, patience: float) -> None:
    """Add what all changes cost, so many times. Logs stay where it failed, and of a trainer whose log is wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-conformance-{system.name}-"))
    (folder / EVENTS).mkdir()
    with system.start(folder, HOSTS) as places:
        wait_trained(places, folder, HOSTS)
        changes = [*HostChange] * rounds
        costs = changed(places, folder, changes, hosts=HOSTS, samples=samples, patience=patience)
    read_step_log(folder / EVENTS, samples=samples)
    for change, cost in costs:
        found.setdefault((system.name, change), []).append(cost)
    shutil.rmtree(folder)


def report(found: Costs, broken: Sequence[str]) -> None:
    """A row for each system and change."""
    record = Record(name="conformance", question="Is every sample used once, and what does a host cost that goes?")
    columns = (
        Column(title="trainer"),
        Column(title="a host is"),
        Column(title="times"),
        *spread_columns("stands still, s", format=".2f"),
        Column(title="at the right size after, s, median", format=".1f"),
        Column(title="steps repeated, most", format=".0f"),
        Column(title="samples wrong, most", format=".0f"),
        Column(title="else"),
    )
    rows = [row(system, change, costs) for (system, change), costs in found.items()]
    title = f"Hosts that go and come, of {HOSTS}"
    record.add(Table(name="conformance", title=title, columns=columns, rows=rows, note="\n".join(broken)))
    record.write()


def row(system: str, change: HostChange, costs: Sequence[FaultCost]) -> list[Value]:
    """What a change has cost a system."""
    return [
        system,
        change,
        len(costs),
        *spread([cost.stall for cost in costs]),
        figure(statistics.median(cost.whole for cost in costs)),
        max(cost.repeated for cost in costs),
        max(cost.wrong_samples for cost in costs),
        "; ".join(sorted({cost.ended for cost in costs if cost.ended})),
    ]


if __name__ == "__main__":
    main()
