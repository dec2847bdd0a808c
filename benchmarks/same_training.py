"""Is the training the same, whatever happens to its workers? Random schedules beside undisturbed runs.

    python -m benchmarks.same_training [--schedules 20] [--seeds 20] [--epochs 12] [--dtype float32] [--engine torch]

The model of the demo learns scikit-learn's digits with a global batch of 64 samples, without dropout. All runs begin
with the same weights and the same order of samples, but for those with another seed.

- *undisturbed*: in worlds of one, two and three workers, from the first step to the last; of each two runs. What
  differs between the sizes is the order of summation. From three workers on it may differ between two runs, too: which
  gradients Horovod sums in one buffer depends on when they are ready. HOROVOD_FUSION_THRESHOLD=0 sums each by itself.
- *over torch.distributed*: the same, beside the runs over Horovod in worlds of the same size.
- *schedules*: the number of hosts changes at random times to one, two or three, by preemptions with a grace period, and
  a host's processes are killed, as the seed of the schedule says.
- *other seeds*: one worker, undisturbed, other first weights and another order of samples: what researchers call
  noise.

Schedules and other seeds are over `--engine`, by default Horovod.

No figure is a time. What the runs have written is in `--output` (out/same-training).
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import torch

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.client.bench.line_chart import Axis, Line, line_chart, round_steps
from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.local.local_job import LocalJob, local_cluster, local_job, warm_up
from hvd_elastic.mpijob.contract import ENV_EVENTS, ENV_OUTPUT, Engine
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job

MOST_HOSTS: Final = 3
SIZES: Final = range(1, MOST_HOSTS + 1)
BATCH: Final = 64
STEP_SECONDS: Final = 0.04
"""Of a run that is disturbed: long enough for newcomers to arrive before the end."""
KILLS: Final = 0.3
"""The share of a schedule's disturbances that are kills."""
SCRIPT: Final = Path(__file__).with_name("_same_training_script.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of one training."""

    name: str
    epochs: tuple[dict[str, float], ...]
    """Loss over all training samples and accuracy over the test samples, after each epoch."""
    sizes: tuple[int, ...]
    """World sizes in the order of the steps, without repetition."""
    killed: int
    """Hosts whose processes were killed."""
    weights: Path

    @property
    def loss(self) -> float:
        """After the last epoch."""
        return self.epochs[-1]["loss"]

    @property
    def accuracy(self) -> float:
        """After the last epoch."""
        return self.epochs[-1]["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schedules", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--engine", type=Engine, choices=tuple(Engine), default=Engine.HOROVOD)
    parser.add_argument("--output", type=Path, default=Path("out/same-training"))
    options = parser.parse_args()
    undisturbed = {
        engine: [
            _run(options, f"undisturbed-{engine}-{size}-{turn}", engine, hosts=size)
            for size in SIZES
            for turn in (1, 2)
        ]
        for engine in Engine
    }
    schedules = [_run(options, f"schedule-{seed}", options.engine, schedule=seed) for seed in range(options.schedules)]
    others = [_run(options, f"seed-{seed}", options.engine, seed=seed) for seed in range(1, options.seeds + 1)]
    _report(options, undisturbed, schedules, others)


# --- One run ---------------------------------------------------------------------------------------------------------


def _run(
    options: argparse.Namespace,
    name: str,
    engine: Engine,
    *,
    hosts: int = 1,
    schedule: int | None = None,
    seed: int = 0,
) -> Run:
    folder = (options.output / options.dtype / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.*"):
        old.unlink()
    count = hosts if schedule is None else MOST_HOSTS
    seconds = 0.0 if schedule is None else STEP_SECONDS
    spec = _job(options, engine, seed=seed, hosts=count, step_seconds=seconds)
    environment = local_environment(spec) | {ENV_EVENTS: str(folder), ENV_OUTPUT: str(folder)}
    killed = 0
    with (folder / "output.log").open("wb") as output, local_cluster(spec, environment=environment) as cluster:
        warm_up(cluster, spec, lambda _: None)
        with local_job(spec, cluster, stdout=output.fileno(), environment=environment) as job:
            killed = _until_end(job, None if schedule is None else random.Random(schedule))
            if job.launcher.returncode:
                sys.exit(f"{name} ended with exit code {job.launcher.returncode}: see {folder / 'output.log'}")
    run = Run(name=name, epochs=_epochs(folder), sizes=_sizes(folder), killed=killed, weights=folder / "weights.pt")
    print(
        f"{name}: loss {run.loss:.6f}, accuracy {run.accuracy:.4f}, worlds {' '.join(map(str, run.sizes))}", flush=True
    )
    return run


def _job(options: argparse.Namespace, engine: Engine, *, seed: int, hosts: int, step_seconds: float) -> JobSpec:
    flags = {
        "--epochs": options.epochs,
        "--batch-size": BATCH,
        "--seed": seed,
        "--dtype": options.dtype,
        "--step-seconds": step_seconds,
    }
    values = {
        "name": "same-training",
        "command": ["python", str(SCRIPT), *(str(part) for pair in flags.items() for part in pair)],
        "workers.min": 1,
        "workers.start": hosts,
        "workers.max": hosts,
        "launcher": "launch",
        "engine": engine.value,
        "batch.global": BATCH,
    }
    return read_job(None, values)


def _until_end(job: LocalJob, chance: random.Random | None) -> int:
    """Wait for the job's end, and disturb it as `chance` says. Returns how many hosts were killed."""
    if chance is None:
        job.launcher.wait()
        return 0
    killed = 0
    while job.wait(chance.uniform(0.5, 4.0)) is None:
        hosts = list(job.cluster.hosts.values())
        if chance.random() < KILLS and len(hosts) > 1:
            _kill(chance.choice(hosts).process)
            killed += 1
        else:
            job.cluster.want(chance.randint(1, MOST_HOSTS))
    return killed


def _kill(entry_point: subprocess.Popen[bytes]) -> None:
    """Kill a host's processes, the entry point last: as a lost machine would."""
    try:
        for process in psutil.Process(entry_point.pid).children(recursive=True):
            process.kill()
        entry_point.kill()
    except psutil.NoSuchProcess:
        pass


def _epochs(folder: Path) -> tuple[dict[str, float], ...]:
    """One line an epoch: of an epoch whose end was repeated after a loss, the last."""
    found = {line["epoch"]: line for line in map(json.loads, (folder / "epochs.jsonl").read_text().splitlines())}
    return tuple(found[epoch] for epoch in sorted(found))


def _sizes(folder: Path) -> tuple[int, ...]:
    events = (
        json.loads(line) for file in folder.glob("*.jsonl") if file.name != "epochs.jsonl" for line in file.open()
    )
    steps = sorted((event["time"], event["size"]) for event in events if event.get("event") == "step")
    sizes: list[int] = []
    for _, size in steps:
        if sizes[-1:] != [size]:
            sizes.append(size)
    return tuple(sizes)


# --- The comparison --------------------------------------------------------------------------------------------------


COLUMNS: Final = (
    Column(title=""),
    Column(title="runs"),
    Column(title="bit-equal"),
    Column(title="weights apart", format=".1e"),
    Column(title="at most", format=".1e"),
    Column(title="loss apart", format=".1e"),
    Column(title="at most", format=".1e"),
    Column(title="last loss", format=".6f"),
    Column(title="deviation", format=".6f"),
    Column(title="accuracy", format=".4f"),
    Column(title="lowest", format=".4f"),
    Column(title="highest", format=".4f"),
)


def _difference(name: str, runs: Sequence[Run], reference: Run) -> list[Value]:
    """How far some runs are from the reference: the median and the largest of the runs.

    Weights: the largest difference of one, as a share of the largest weight. Loss: the largest difference after any
    epoch. The last loss is a mean over the runs, with its standard deviation; the accuracy a median.
    """
    weights = [_weights_apart(run, reference) for run in runs]
    loss = [max(abs(a["loss"] - b["loss"]) for a, b in zip(run.epochs, reference.epochs, strict=True)) for run in runs]
    ends, accuracies = [run.loss for run in runs], [run.accuracy for run in runs]
    return [
        name,
        len(runs),
        weights.count(0.0),
        statistics.median(weights),
        max(weights),
        statistics.median(loss),
        max(loss),
        statistics.mean(ends),
        statistics.pstdev(ends),
        statistics.median(accuracies),
        min(accuracies),
        max(accuracies),
    ]


def _weights_apart(run: Run, reference: Run) -> float:
    one, other = (torch.load(each.weights, weights_only=True) for each in (run, reference))
    largest = max(float(weight.abs().max()) for weight in other.values())
    return max(float((one[name] - other[name]).abs().max()) for name in other) / largest


def _report(
    options: argparse.Namespace,
    over: Mapping[Engine, Sequence[Run]],
    schedules: Sequence[Run],
    others: Sequence[Run],
) -> None:
    """`over`: the undisturbed runs."""
    undisturbed = over[options.engine]
    reference = undisturbed[-1]
    groups = {f"undisturbed, world of {size}": _of_size(undisturbed, size) for size in SIZES}
    groups |= {"random schedules": schedules, "other seeds": others}
    resizes = sum(len(run.sizes) - 1 for run in schedules)
    record = Record(name="same_training", question="Is the training the same, whatever happens to its workers?")
    record.add(
        Table(
            name=f"same-training-{options.dtype}",
            title=f"Runs beside {reference.name}: {options.epochs} epochs of the digits, {options.dtype}",
            columns=COLUMNS,
            rows=[_difference(name, runs, reference) for name, runs in groups.items() if runs],
            note=f"In the schedules: {resizes} resizes, {sum(run.killed for run in schedules)} hosts killed.",
        )
    )
    engines = Table(
        name=f"same-training-engines-{options.dtype}",
        title="Undisturbed runs over torch.distributed, beside the first over Horovod in a world of the same size",
        columns=COLUMNS,
        rows=[
            _difference(f"world of {size}", _of_size(over[Engine.TORCH], size), _of_size(over[Engine.HOROVOD], size)[0])
            for size in SIZES
        ],
    )
    record.add(engines)
    unequal = 2 * 2 - sum(engines.figures("bit-equal", rows=("world of 1", "world of 2")))
    what = "runs over torch.distributed in worlds of one and two that are not bit-equal to those over Horovod"
    record.promise(Aim(what=what, bound=0, measured=unequal, format=".0f"))
    record.pictures["loss"] = _picture(reference, schedules, others)
    record.write()


def _of_size(runs: Sequence[Run], size: int) -> Sequence[Run]:
    return runs[2 * size - 2 : 2 * size]


def _picture(reference: Run, schedules: Sequence[Run], others: Sequence[Run]) -> str:
    """The undisturbed run, the schedule that ended farthest from it, and the bounds of the other seeds."""
    shown = [Line(name="undisturbed", points=_curve(reference))]
    if schedules:
        farthest = max(schedules, key=lambda run: abs(run.loss - reference.loss))
        shown.append(Line(name=f"farthest of {len(schedules)} schedules", points=_curve(farthest)))
    if others:
        curves = [_curve(run) for run in others]
        for name, bound in (("lowest of other seeds", min), ("highest of other seeds", max)):
            points = [(places[0][0], bound(value for _, value in places)) for places in zip(*curves, strict=True)]
            shown.append(Line(name=name, points=points, dashed=True))
    epochs = len(reference.epochs)
    losses = [value for line in shown for _, value in line.points]
    return line_chart(
        shown,
        title="Training loss: random schedules beside the undisturbed run",
        x=Axis(title="epoch", ticks=[(float(epoch), str(epoch)) for epoch in range(epochs + 1)]),
        y=Axis(title="loss of all training samples", ticks=[(tick, f"{tick:g}") for tick in round_steps(max(losses))]),
    )


def _curve(run: Run) -> list[tuple[float, float]]:
    return [(number + 1.0, epoch["loss"]) for number, epoch in enumerate(run.epochs)]


if __name__ == "__main__":
    main()
