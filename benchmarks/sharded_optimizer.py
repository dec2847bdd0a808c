"""`elastic.ShardedOptimizer` beside `hvd.DistributedOptimizer`: memory of a rank, a step, a commit, and a resize.

Both train the same model with Adam, in real Horovod processes over Gloo that `hvd-elastic launch` starts and resizes on
this machine, in turns. Adam's state is 8 bytes for each parameter, 0.54 GB with the default model.

- Memory: after some steps and commits, the bytes that a rank keeps of the optimizer's state, and of commits and copies
  in host memory; and the resident set of its process, above what it was before there was a model.
- A step: forward and backward pass of one sample, averaging, the optimizer. So there is little to compute, and an
  averaging that overlaps with the backward pass hides little.
- A resize: what `State.sync()` does once all processes are there. A reshard is all of it but receiving the parameters:
  shares are moved and copied to a second rank, and become a commit. It is the time of the slowest rank.

CPU seconds are those of all threads: of one rank in a step, of all ranks together in a resize. On a machine that is
busy with other work, they are the firmer figure.

    python -m benchmarks.sharded_optimizer [--sizes 1 2 3 4] [--layers 16] [--width 2048] [--steps 4] [--rounds 2]
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from testbed.local.training import Training, training

WORKER = Path(__file__).with_name("_sharded_worker.py")
SHARDED, PLAIN = "ShardedOptimizer", "DistributedOptimizer"
WAYS = (PLAIN, SHARDED)
MB, GB = 1e6, 1e9
AIM_SECONDS = 1.0
"""Of a reshard, for each GB of the optimizer's state."""
PATIENCE_SECONDS = 1800.0
STATE_BYTES = 8
"""Of Adam, for each parameter in float32."""

Figures = Mapping[str, Any]
"""What a rank has told: times as pairs of wall and CPU seconds, memory in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Linear layers without a bias, and how often they are stepped."""

    width: int
    layers: int
    steps: int

    @property
    def state_gb(self) -> float:
        """Of Adam's state, in all."""
        return self.width**2 * self.layers * STATE_BYTES / GB


@contextmanager
def job(way: str, model: Model, size: int) -> Iterator[Training]:
    """A job that trains on hosts `h0`, `h1` ... and has taken its steps at its first size."""
    flags = [f"--{name}={value}" for name, value in vars_of(model).items()]
    with tempfile.TemporaryDirectory(prefix="bench-sharded-") as folder, training(Path(folder)) as running:
        running.offer(*names(range(size)))
        sharded = ["--sharded"] if way == SHARDED else []
        running.launch("-np", str(size), "--min-np", "1", "--max-np", "8", script=WORKER, arguments=[*flags, *sharded])
        told = f"the memory of {size} ranks"
        running.until(lambda: len(running.written("memory")) == size, told, PATIENCE_SECONDS)
        yield running
        (running.log / "STOP").touch()
        running.ends(PATIENCE_SECONDS)


def vars_of(model: Model) -> dict[str, int]:
    return {"width": model.width, "layers": model.layers, "steps": model.steps}


def names(numbers: Sequence[int]) -> list[str]:
    return [f"h{number}" for number in numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the ranks of a world told before it was resized."""

    way: str
    size: int
    memory: Sequence[Figures]
    steps: Sequence[Figures]

    def __str__(self) -> str:
        seconds, cpu = (statistics.median(each["step"][kind] for each in self.steps) for kind in (0, 1))
        resident = max(each["rss"] for each in self.memory) / MB
        return f"{self.way}, {self.size} ranks: a step {seconds:.2f} s, {cpu:.2f} s of CPU; {resident:.0f} MB resident"


def world_of(way: str, size: int, running: Training) -> World:
    return World(way=way, size=size, memory=running.written("memory"), steps=running.written("step"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """What the ranks of a new world told of its `sync()`."""

    way: str
    change: str
    syncs: Sequence[Figures]

    def __str__(self) -> str:
        return f"{self.way}, {self.change}: sync() {self.wall('sync'):.2f} s, {self.cpu('sync'):.2f} s of CPU in all"

    def wall(self, *parts: str) -> float:
        """Seconds of some parts, of the rank that they took longest."""
        return max(sum(float(each.get(part, (0, 0))[0]) for part in parts) for each in self.syncs)

    def cpu(self, *parts: str) -> float:
        """CPU seconds of some parts, of all ranks together."""
        return sum(float(each.get(part, (0, 0))[1]) for each in self.syncs for part in parts)


def resizes(way: str, running: Training, rounds: int) -> Iterator[Resize]:
    """Resize a job of two hosts: one joins, one goes, one joins, one is killed; as often as `rounds`."""
    hosts, fresh = [0, 1], itertools.count(2)
    for _ in range(rounds):
        for change, size, kills in (("2 → 3", 3, False), ("3 → 2", 2, False), ("2 → 3", 3, False), ("lost", 2, True)):
            before = len(running.written("sync"))
            if kills:
                running.kill(f"h{hosts.pop(1)}")
            else:
                hosts = [*hosts, next(fresh)] if size == 3 else hosts[:-1]
                running.offer(*names(hosts))
            running.trains(size, 2, PATIENCE_SECONDS)
            told = sorted(running.written("sync"), key=lambda each: each["time"])[before:]
            syncs = {each["rank"]: each for each in told if each["size"] == size}
            yield Resize(way=way, change="3 → 2, a rank killed" if kills else change, syncs=list(syncs.values()))


def memory_table(worlds: Sequence[World], model: Model) -> Table:
    titles = ("state", "gradients and parameters", "commits and copies", "in all", "process, resident", "at most")

    def row(world: World) -> list[Value]:
        state, held = (max(each[key] for each in world.memory) / MB for key in ("state", "held"))
        both = model.state_gb * GB / MB
        resident, most = (max(each[key] - each["at_start"] for each in world.memory) / MB for key in ("rss", "most"))
        return [world.size, world.way, state, both, held, state + both + held, resident, most]

    return Table(
        name="sharded-memory",
        title=f"Memory of a rank in MB, {model.state_gb:.2f} GB of Adam's state in all",
        columns=(Column(title="ranks"), Column(title="optimizer"), *(Column(title=t, format=".0f") for t in titles)),
        rows=[row(world) for world in worlds],
        note="The rank that has most of each. Resident: above the process before it had a model.",
    )


def step_table(worlds: Sequence[World], model: Model) -> Table:
    def row(world: World) -> list[Value]:
        both = (
            statistics.median(each[what][kind] for each in world.steps)
            for what in ("step", "commit")
            for kind in (0, 1)
        )
        return [world.size, world.way, *both]

    titles = ("step, seconds", "step, CPU", "commit, seconds", "commit, CPU")
    return Table(
        name="sharded-steps",
        title=f"A step and a commit, {model.state_gb:.2f} GB of Adam's state in all",
        columns=(Column(title="ranks"), Column(title="optimizer"), *(Column(title=t, format=".2f") for t in titles)),
        rows=[row(world) for world in worlds],
        note="Medians over steps and ranks.",
    )


RESHARD = ("agree_on_commit", "move", "save", "copy")
"""Parts of `sync()`."""


def resize_table(found: Sequence[Resize], model: Model) -> Table:
    def row(way: str, change: str) -> list[Value]:
        same = [each for each in found if (each.way, each.change) == (way, change)]
        figures = [
            [
                *pair(each, "sync"),
                *pair(each, "receive"),
                *pair(each, "move", "copy"),
                *pair(each, "save"),
            ]
            for each in same
        ]
        medians = [statistics.median(column) for column in zip(*figures, strict=True)]
        walls = [each.wall(*RESHARD) / model.state_gb for each in same]
        cpu = statistics.median(each.cpu(*RESHARD) for each in same) / model.state_gb
        ends = (min(walls), statistics.median(walls), cpu) if way == SHARDED else (None, None, None)
        return [change, way, *medians, *ends]

    parts = ("sync", "receive", "shares", "commit")
    times = [f"{part}, {unit}" for part in parts for unit in ("seconds", "CPU")]
    ends = ("reshard, seconds for each GB, least", "median", "CPU for each GB")
    return Table(
        name="sharded-resizes",
        title=f"A resize, {model.state_gb:.2f} GB of Adam's state in all",
        columns=(
            Column(title="change"),
            Column(title="optimizer"),
            *(Column(title=t, format=".2f") for t in (*times, *ends)),
        ),
        rows=[row(way, change) for change in dict.fromkeys(each.change for each in found) for way in WAYS],
    )


def pair(resize: Resize, *parts: str) -> tuple[float, float]:
    return resize.wall(*parts), resize.cpu(*parts)


def aims(sharded: Sequence[Resize], model: Model) -> list[Aim]:
    """Of each kind of resize."""
    kinds = dict.fromkeys(each.change for each in sharded)
    walls = {kind: [each.wall(*RESHARD) for each in sharded if each.change == kind] for kind in kinds}
    return [
        Aim(
            what=f"seconds of a reshard for each GB of state, {kind} ranks",
            bound=AIM_SECONDS,
            measured=statistics.median(seconds) / model.state_gb,
        )
        for kind, seconds in walls.items()
    ]


NEW_MEMORY_GB = 4.0


def new_memory_table() -> Table:
    """What a resize cannot be faster than: a hypervisor that takes free memory back gives it anew, page by page."""
    memory = torch.empty(int(NEW_MEMORY_GB * GB), dtype=torch.uint8)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        memory.fill_(1)
        seconds.append((time.perf_counter() - began) / NEW_MEMORY_GB)
    return Table(
        name="sharded-new-memory",
        title="Seconds in which one process fills a GB of memory",
        columns=(Column(title="new, before the jobs", format=".2f"), Column(title="the same, once more", format=".2f")),
        rows=[seconds],
        note="A newcomer's share, copy and commit are all new memory.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 3, 4], help="ranks; resizes begin with 2")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4, help="that are timed")
    parser.add_argument("--rounds", type=int, default=2, help="of resizes; 0: none")
    given = parser.parse_args()
    model = Model(width=given.width, layers=given.layers, steps=given.steps)
    record = Record(
        name="sharded_optimizer",
        question="What does a sharded optimizer hold, and what does it cost in steps and resizes?",
    )
    new_memory = new_memory_table()
    worlds: list[World] = []
    found: list[Resize] = []
    for size, way in itertools.product(sorted({*given.sizes, 2}), WAYS):
        with job(way, model, size) as running:
            worlds.append(world_of(way, size, running))
            print(worlds[-1], flush=True)
            for resize in resizes(way, running, given.rounds) if size == 2 else ():
                found.append(resize)
                print(resize, flush=True)
    record.add(memory_table(worlds, model))
    record.add(step_table(worlds, model))
    if found:
        record.add(resize_table(found, model))
        record.add(new_memory)
        record.promise(*aims([each for each in found if each.way == SHARDED], model))
    record.write()


if __name__ == "__main__":
    main()
