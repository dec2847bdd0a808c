"""The demo: three runs of the same training, one after the other.

1. `hvd-elastic launch` while the made-up inference load takes hosts and gives them back;
2. the same training undisturbed, which shows the accuracy to reach;
3. stock `horovodrun` with Horovod's own state and sampler under the same load, which is what users have today; not
   where torch.distributed is the engine, and Horovod may not be there.
"""

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from hvd_elastic.local.demo.demo_data import digits, idx_folder
from hvd_elastic.local.demo.display import Display, DisplayState
from hvd_elastic.local.demo.inference_load import LoadPhase, is_over, made_up_load
from hvd_elastic.local.demo.timeline import Coverage, Event, EventTail, Timeline, coverage, timeline
from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.local.local_job import LocalJob, local_cluster, local_job, warm_up
from hvd_elastic.mpijob.contract import ENV_EVENTS, ENV_OUTPUT, Engine, HvdElasticError
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.system.plain_words import count_words

UNDISTURBED: Final = "undisturbed"
LOOK_SECONDS: Final = 0.1
"""Between two looks at a run's events."""
STOCK_SECONDS: Final = 25.0
"""How long the stock training is watched, if it has grown by then."""
STOCK_LIMIT_SECONDS: Final = 50.0
"""How long it is watched at most. It can stand still without end: a newcomer waits in a broadcast that the survivors
skip (horovod issue 3494), or imports for longer than Gloo's time-out."""
PATIENCE_SECONDS: Final = 30.0
"""How much longer than its own time a phase of the load waits for training to fill its capacity."""


class DemoError(HvdElasticError):
    """A run has failed. The message holds the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the demo runs."""

    hosts: int = 4
    min_workers: int = 1
    seed: int = 0
    load_seconds: float = 12.0
    """Minimum length of the made-up load. The training takes longer, so that it ends at full size."""
    epochs: int = 20
    batch_size: int = 64
    step_seconds: float = 0.05
    """Minimum time of a step under load. It stands for a GPU's work and makes both launchers' steps equally long."""
    data: Path | None = None
    """Folder of IDX files; None: scikit-learn's digits."""
    output: Path = Path("out/demo")
    engine: Engine = Engine.HOROVOD
    """What the processes train over. Stock horovodrun knows Horovod alone."""

    @property
    def load(self) -> tuple[LoadPhase, ...]:
        """How many hosts inference takes, and for how long."""
        return made_up_load(seed=self.seed, hosts=self.hosts, min_workers=self.min_workers, seconds=self.load_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """The result of one run."""

    title: str
    timeline: Timeline
    coverage: Coverage
    accuracy: float | None
    """None if the run was ended before its own end."""
    seconds: float
    """From its first to its last step."""
    capacity: tuple[tuple[float, int], ...]
    """Pairs of unix seconds and the number of hosts left for training from then on."""


def run_demo(settings: DemoSettings, display: Display, *, stock: bool = True) -> tuple[DemoRun, ...]:
    """Run the three trainings (two without `stock`). Raises DemoError with the output of one that fails."""
    no_load = (LoadPhase(hosts=0, seconds=0),)
    # The global batch is the same for any number of workers, so the undisturbed run uses the fastest number.
    fastest = min(settings.hosts, os.cpu_count() or 1)
    runs = [
        _run(
            settings,
            "hvd-elastic",
            _job(settings, "train", "launch", settings.hosts, settings.step_seconds),
            settings.load,
            display,
        ),
        _run(settings, UNDISTURBED, _job(settings, "train", "launch", fastest, 0.0), no_load, display),
    ]
    if stock:
        spec = _job(settings, "train_stock", "horovodrun", settings.hosts, settings.step_seconds)
        runs.append(_run(settings, "stock horovodrun", spec, settings.load, display, bare=True))
    return tuple(runs)


def _job(settings: DemoSettings, script: str, launcher: str, hosts: int, step_seconds: float) -> JobSpec:
    arguments = {
        "--epochs": settings.epochs,
        "--batch-size": settings.batch_size,
        "--step-seconds": step_seconds,
        "--data": settings.data,
    }
    flags = [str(part) for name, value in arguments.items() if value is not None for part in (name, value)]
    if script == "train_stock":
        flags += ["--workers", str(hosts)]
    values = {
        "name": "demo",
        "command": ["python", str(Path(__file__).with_name(f"{script}.py")), *flags],
        "workers.min": min(settings.min_workers, hosts),
        "workers.start": hosts,
        "workers.max": hosts,
        "launcher": launcher,
        "engine": settings.engine.value,
        "batch.global": settings.batch_size,
        "standby": "init" if launcher == "launch" else "off",
    }
    return read_job(None, values)


def _run(
    settings: DemoSettings,
    title: str,
    spec: JobSpec,
    load: Sequence[LoadPhase],
    display: Display,
    *,
    bare: bool = False,
) -> DemoRun:
    due = settings.epochs * _count_samples(settings)
    folder = settings.output / title.replace(" ", "-")
    events_folder = folder / "events"
    events_folder.mkdir(parents=True, exist_ok=True)
    for old in (*events_folder.glob("*.jsonl"), *folder.glob("result.json")):
        old.unlink()
    environment = local_environment(spec) | {
        ENV_EVENTS: str(events_folder.absolute()),
        ENV_OUTPUT: str(folder.absolute()),
    }
    log = folder / "output.log"
    with log.open("wb") as output, local_cluster(spec, environment=environment) as cluster:
        display.say(f"{title}: starting {count_words(spec.workers.max, 'worker')}")
        warm_up(cluster, spec, lambda _: None)
        with local_job(spec, cluster, stdout=output.fileno(), environment=environment, bare=bare) as job:
            watcher = RunWatcher(title=title, job=job, load=load, tail=EventTail(events_folder), display=display)
            code = watcher.until_end(
                enough_seconds=STOCK_SECONDS if bare else math.inf,
                limit_seconds=STOCK_LIMIT_SECONDS if bare else math.inf,
            )
    if code:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise DemoError(f"the run {title!r} ended with exit code {code}; the end of {log}:\n{end}")
    result = {"accuracy": None} if code is None else json.loads((folder / "result.json").read_text())
    steps = timeline(watcher.events)
    return DemoRun(
        title=title,
        timeline=steps,
        coverage=coverage(watcher.events, due=due),
        accuracy=result["accuracy"],
        seconds=steps.steps[-1].time - steps.steps[0].time,
        capacity=tuple(watcher.capacity),
    )


def _count_samples(settings: DemoSettings) -> int:
    return len((idx_folder(settings.data) if settings.data else digits()).train_labels)


@dataclass(slots=True, kw_only=True)
class RunWatcher:
    """From the job's first step to its end: applies the load to the cluster, and displays the run."""

    title: str
    job: LocalJob
    load: Sequence[LoadPhase]
    tail: EventTail
    display: Display
    events: list[Event] = field(default_factory=list)
    capacity: list[tuple[float, int]] = field(default_factory=list)
    _has_grown: bool = False
    _phase: int = -1
    _newest: Event | None = None

    def until_end(self, *, enough_seconds: float, limit_seconds: float) -> int | None:
        """Wait for the job's exit code.

        None if the job still trains `limit_seconds` after its first step, or `enough_seconds` after it and has grown.
        """
        while True:
            code = self.job.wait(LOOK_SECONDS)
            self._look(time.time())
            if code is not None:
                return code
            seconds = time.time() - self.capacity[0][0] if self.capacity else 0.0
            if seconds > (enough_seconds if self._has_grown else limit_seconds):
                self.display.say(f"{self.title}: ended after {seconds:.0f} s")
                return None

    def _look(self, now: float) -> None:
        new = self.tail.new_events()
        self.events += new
        steps = [event for event in new if event["event"] == "step" and event["rank"] == 0]
        sizes = [event["size"] for event in (self._newest, *steps) if event]
        self._has_grown |= any(after > before for before, after in pairwise(sizes))
        self._newest = steps[-1] if steps else self._newest
        if self._newest:
            self._advance_load(now, self._newest["size"])
            self._show(now, self._newest)

    def _advance_load(self, now: float, size: int) -> None:
        cluster = self.job.cluster
        since = self.capacity[-1][0] if self.capacity else now
        last = len(self.load) - 1
        if self._phase < 0 or (
            self._phase < last
            and is_over(
                self.load[self._phase],
                seconds=now - since,
                full=size == cluster.wanted,
                patience_seconds=PATIENCE_SECONDS,
            )
        ):
            self._phase += 1
            cluster.want(len(cluster.names) - self.load[self._phase].hosts)
            self.capacity.append((now, cluster.wanted))

    def _show(self, now: float, newest: Event) -> None:
        cluster = self.job.cluster
        self.display.show(
            DisplayState(
                run=self.title,
                seconds=now - self.capacity[0][0],
                capacity=cluster.wanted,
                inference=cluster.inference,
                size=newest["size"],
                step=newest["step"],
                loss=newest.get("loss"),
            )
        )
