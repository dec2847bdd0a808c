"""What it costs to measure each rank's own part of a step, and to compare the ranks'.

    python -m benchmarks.rank_pace [--rounds 9] [--steps 2000]

The calls of one step in this process, with what measures and without it in turns: a step of a State with its batch, a
wait for Horovod, and forward and backward pass of a small DistributedDataParallel in a world of one. Then the file that
a process writes each five seconds, and how long the sidecar takes to compare the ranks of a world, which it does once a
second at most. Bound: a thousandth of a step of 50 ms, over either engine.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.report.aim import Aim, Outcome
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.discovery.ledger.history.slow_ranks import MOST_BLOCKS, find_slow
from hvd_elastic.discovery.ledger.rank_pace import PacedBlock
from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls
from hvd_elastic.trainer.telemetry.pace.pace_file import BLOCKS, PaceFile
from hvd_elastic.trainer.telemetry.pace.step_pace import BLOCK_SECONDS, PaceBlock, StepPace

STEP_SECONDS: Final = 0.05
BOUND: Final = 1e-3
"""Of a step."""
SIZES: Final = (8, 128, 2048)

Loop = Callable[[int], None]
"""Does so many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a step does, with and without what measures it."""

    name: str
    with_it: Loop
    without: Loop


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    record = Record(name="rank_pace", question="What does it cost to know which rank is slow?")
    costs = {call.name: added(call, given.rounds, given.steps) for call in calls()}
    costs["the file, by step"] = (0.0, file_seconds(given.rounds) * STEP_SECONDS / BLOCK_SECONDS)
    columns = [Column(title="call")]
    columns += [Column(title=title, format=".2f") for title in ("without, us", "with, us", "more, us")]
    columns.append(Column(title=f"of a step of {STEP_SECONDS * 1e3:.0f} ms, %", format=".4f"))
    rows: list[list[Value]] = [
        [name, without * 1e6, (without + more) * 1e6, more * 1e6, more / STEP_SECONDS * 100]
        for name, (without, more) in costs.items()
    ]
    record.add(Table(name="rank-pace-step", title="What a step costs more", columns=columns, rows=rows))
    record.add(compared(given.rounds))
    (state, _), *others, (file, _) = [(more, name) for name, (_, more) in costs.items()]
    aims = [
        Aim(
            what=f"of a step of {STEP_SECONDS * 1e3:.0f} ms, with {name}, %",
            bound=BOUND * 100,
            measured=(state + more + file) / STEP_SECONDS * 100,
            format=".4f",
        )
        for more, name in others
    ]
    record.promise(*aims)
    record.write()
    return int(any(aim.outcome is not Outcome.MET for aim in aims))


def calls() -> Iterator[Call]:
    yield Call(name="a step of a State and its batch", with_it=state_steps, without=bare_steps)
    calls, nothing = CollectiveCalls(), lambda _: None
    watched = calls.watched(nothing)
    yield Call(
        name="ten waits for Horovod",
        with_it=lambda steps: waits(watched, steps),
        without=lambda steps: waits(nothing, steps),
    )
    yield passes()


def bare_steps(steps: int) -> None:
    for _ in iter(range(steps)):
        pass


def state_steps(steps: int) -> None:
    pace = StepPace()
    pace.enter_world()
    pace._settled, pace._to_settle = 0.0, 0  # as after the first steps
    for _ in pace.timed(iter(range(steps))):
        pace.end_step()
        pace.begin_step()


def waits(wait: Callable[[int], None], steps: int) -> None:
    for _ in range(10 * steps):
        wait(0)


def passes() -> Call:
    """Forward and backward pass of a small model."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from hvd_elastic.trainer.collectives.torch_engine.gradient_wait import GradientWait
    from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld

    torch.set_num_threads(1)
    TorchTrainingWorld().init()
    models = [DistributedDataParallel(torch.nn.Linear(4, 4)) for _ in range(2)]
    for model in models:
        model.register_forward_pre_hook(lambda _, __: None)  # as each of ours has one
    GradientWait().watch(models[1])
    x = torch.ones(2, 4)

    def steps(model: "DistributedDataParallel", count: int) -> None:
        for _ in range(count):
            model(x).sum().backward()

    return Call(
        name="passes over torch.distributed",
        with_it=lambda count: steps(models[1], count),
        without=lambda count: steps(models[0], count),
    )


def added(call: Call, rounds: int, steps: int) -> tuple[float, float]:
    """Seconds of CPU of a step without it, and how many more with it: medians of rounds in turns."""
    without, more = list[float](), list[float]()
    for _ in range(rounds + 1):
        base = cpu_seconds(call.without, steps)
        without.append(base)
        more.append(cpu_seconds(call.with_it, steps) - base)
    return statistics.median(without[1:]), statistics.median(more[1:])


def cpu_seconds(loop: Loop, steps: int) -> float:
    began = time.process_time()
    loop(steps)
    return (time.process_time() - began) / steps


def file_seconds(rounds: int) -> float:
    """Of the file of one block."""
    file, block = PaceFile(), PaceBlock(unix=1.7e9, steps=100, step_seconds=0.05, computing=0.04, loading=0.001)

    def write(count: int) -> None:
        for _ in range(count):
            file.add(block, rank=0, size=8, local_rank=0)

    with tempfile.TemporaryDirectory() as folder:
        os.environ[ENV_RUN_DIR] = folder
        return statistics.median(cpu_seconds(write, 200) for _ in range(rounds))


def compared(rounds: int) -> Table:
    """How long the comparison of a world takes, in which nobody is slow, and in which one is."""

    def row(size: int) -> list[Value]:
        return [size, *(statistics.median(seconds(world(size, times)) for _ in range(rounds)) for times in (1.0, 1.5))]

    def seconds(series: dict[int, list[PacedBlock]]) -> float:
        began = time.process_time()
        find_slow(series, len(series))
        return (time.process_time() - began) * 1e3

    return Table(
        name="rank-pace-compared",
        title="To compare the ranks of a world",
        columns=[
            Column(title="ranks"),
            Column(title="nobody is slow, ms", format=".2f"),
            Column(title="one is, ms", format=".2f"),
        ],
        rows=[row(size) for size in SIZES],
        note=f"{MOST_BLOCKS} blocks each; a process tells its last {BLOCKS}.",
    )


def world(size: int, times: float) -> dict[int, list[PacedBlock]]:
    drawn = random.Random(size)

    def blocks(factor: float) -> list[PacedBlock]:
        return [
            PacedBlock(
                unix=5.0 * number,
                steps=100,
                step_seconds=0.05,
                computing=factor * drawn.gauss(0.04, 0.001),
                loading=0.0,
            )
            for number in range(MOST_BLOCKS)
        ]

    return {rank: blocks(times if rank == 1 else 1.0) for rank in range(size)}


if __name__ == "__main__":
    raise SystemExit(main())
