"""Where each second of a start goes, from `kubectl apply` to the first step, beside a bare pod that imports torch.

    python -m benchmarks.job_start [--rounds 5] [--workers 1,3] [--systems launch,horovodrun,stock]

On the cluster of docs/cluster.md, in turns in each round: as many bare pods at once as the job has workers, of the same
image, with the same requests, on the same node, each of which imports torch and no more; then a job of each system. The
volume for results is there before. Each moment is that of the last worker. Aim: the first step comes at most AIM times
as late as the last of the bare pods has imported torch.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value, spread, spread_columns
from benchmarks.start.start_moments import StartedPod, StartMoment, medians, moments, steps_between
from benchmarks.systems.product import HOROVODRUN, LAUNCH
from benchmarks.systems.stock import STOCK
from benchmarks.systems.system import SPOT, System, WantedJob, add_systems_option
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import jobs, pods
from testbed.cluster.faults import STANDBY
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site, attach, make_namespace, remove_namespace, running_or_up, told
from testbed.cluster.timeline import Timeline
from testbed.kube import cluster as kube
from testbed.kube import waiting
from testbed.kube.errors import DeadlineError
from testbed.kube.kubectl import Kubectl

SYSTEMS: Final = (LAUNCH, HOROVODRUN, STOCK)
AIM: Final = 1.3
BARE: Final = "bare"
START_SECONDS: Final = 240.0
"""Stock's list of hosts may come minutes late."""
OUT: Final = Path("out/bench-job-start")

_IMPORT: Final = """
import time, torch
now, up = time.time(), float(open('/proc/uptime').read().split()[0])
ticks = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19])
print([now - up + ticks / 100, now])
"""
"""Prints when its process began and when torch was imported, in Unix seconds."""
_PROCESSES: Final = """
import json, pathlib, time
now, up = time.time(), float(open('/proc/uptime').read().split()[0])
found = []
for folder in pathlib.Path('/proc').glob('[0-9]*'):
    try:
        words = (folder / 'cmdline').read_bytes().split(b'\\0')
        ticks = int((folder / 'stat').read_text().rpartition(')')[2].split()[19])
    except OSError:
        continue
    found.append([int(folder.name), now - up + ticks / 100, b' '.join(words).decode()])
print(json.dumps(found))
"""
"""Prints each process of a pod: number, start in Unix seconds, command line (proc(5), field 22 of stat)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """One start: seconds after it was applied."""

    system: str
    workers: int
    seconds: Mapping[StartMoment, float]

    @property
    def whole(self) -> float:
        """Until its first step, or, of a bare pod, until torch is imported."""
        return self.seconds[StartMoment.IMPORTED if self.system == BARE else StartMoment.STEPPED]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", default="1,3", help="sizes of the job")
    add_systems_option(parser, SYSTEMS)
    flags = parser.parse_args()
    found: list[JobStart] = []
    broken: list[str] = []
    running, ours = running_or_up()
    try:
        site = attach(running)
        jobs.priority_classes(site)
        for number in range(flags.rounds):
            for workers in map(int, flags.workers.split(",")):
                found.append(start_bare(site, workers))
                for system in flags.systems:
                    try:
                        found.append(start_job(site, system, workers))
                    except (AssertionError, DeadlineError) as error:
                        broken.append(f"round {number + 1}, {system.name}: {str(error).splitlines()[0]}")
    finally:
        if ours:
            kube.down()
    report(found, broken)


def start_bare(site: Site, workers: int) -> JobStart:
    """So many pods at once that import torch."""
    names = [f"bare-{number}" for number in range(workers)]
    with _watched(site, BARE) as (kubectl, timeline):
        described = [_bare_pod(site, name) for name in names]
        applied = time.time()
        kubectl.apply(described)
        waiting.until("all have imported torch", lambda: _ended(timeline) >= {*names}, within_seconds=START_SECONDS)
        said = {name: json.loads(kubectl("logs", name)) for name in names}
        sightings = {name: [seen for seen in timeline.pods if seen.pod == name] for name in names}
    started = [StartedPod(sightings=sightings[name], processes=[(1, said[name][0], "")]) for name in names]
    imported = max(done for _, done in said.values()) - applied
    seconds = {**moments(applied=applied, workers=started), StartMoment.IMPORTED: imported}
    seconds.pop(StartMoment.READY, None)  # without a probe: as soon as it runs
    return _noted(JobStart(system=BARE, workers=workers, seconds=seconds))


def _ended(timeline: Timeline) -> set[str]:
    return {seen.pod for seen in timeline.pods if seen.phase == "Succeeded"}


def _bare_pod(site: Site, name: str) -> dict[str, Any]:
    described = pods.pod(
        name, image=site.image, selector=SPOT, command=["python", "-c", _IMPORT], gpus=1, priority="preemptible-pc"
    )
    (container,) = described["spec"]["containers"]
    container["resources"]["requests"] = {part: jobs.workers()[part] for part in ("cpu", "memory")}
    return described


def start_job(site: Site, system: System, workers: int) -> JobStart:
    """A job of so many workers, until its first step at full size."""
    with _watched(site, system.name) as (kubectl, timeline):
        shared = jobs.share_results(site, kubectl)
        wanted = WantedJob(node_labels=SPOT, start=workers, size=workers, shared=shared)
        job = system.submit(site, kubectl, wanted)
        job.wait_size(workers, within_seconds=START_SECONDS)
        job.wait_steps(5)
        return _noted(JobStart(system=system.name, workers=workers, seconds=_of_job(job, system, timeline, workers)))


def _of_job(job: Job, system: System, timeline: Timeline, workers: int) -> dict[StartMoment, float]:
    names = [str(one["metadata"]["name"]) for one in job.pods(Role.WORKER)]
    (launcher,) = (str(one["metadata"]["name"]) for one in job.pods(Role.LAUNCHER))
    account = job.account
    return moments(
        applied=job.applied,
        stored=next((at for at, name in timeline.jobs if name == job.name), None),
        workers=[_started(job.kubectl, timeline, name, "worker", program=system.program) for name in names],
        launcher=_started(job.kubectl, timeline, launcher, "launcher"),
        sidecar=() if system.program != STANDBY else _said(job.kubectl, launcher, "discovery"),
        joined=[float(event["time"]) for event in account.events if event["event"] == "joined"],
        stepped=next(float(step["time"]) for step in account.steps if step["size"] == workers),
    )


def _started(kubectl: Kubectl, timeline: Timeline, name: str, container: str, *, program: str = "") -> StartedPod:
    processes = json.loads(pods.python(kubectl, name, _PROCESSES, container=container))
    return StartedPod(
        sightings=[seen for seen in timeline.pods if seen.pod == name],
        processes=[(int(pid), float(at), str(words)) for pid, at, words in processes],
        said=_said(kubectl, name, container),
        # A standby begins long before it is taken.
        program="" if program == STANDBY else program,
    )


def _said(kubectl: Kubectl, name: str, container: str) -> list[tuple[float, str]]:
    """A container's lines until now, each with the Unix seconds at which the runtime got it."""
    lines = kubectl("logs", name, f"--container={container}", "--timestamps").splitlines()
    stamped = (line.partition(" ") for line in lines if line[:1].isdigit())
    return [(datetime.fromisoformat(stamp).timestamp(), text) for stamp, _, text in stamped]


@contextmanager
def _watched(site: Site, name: str) -> Iterator[tuple[Kubectl, Timeline]]:
    """A namespace, and what the API server tells of it."""
    kubectl = make_namespace(site, f"start-{name}")
    timeline = Timeline(kubectl, OUT / name)
    timeline.start(with_logs=False)
    try:
        yield kubectl, timeline
    finally:
        timeline.stop(told(kubectl))
        remove_namespace(site, f"start-{name}")


def _noted(start: JobStart) -> JobStart:
    moments_said = ", ".join(f"{moment} {at:.2f}" for moment, at in start.seconds.items())
    print(f"{time.strftime('%H:%M:%S')} {start.system}, {start.workers} workers: {moments_said}", flush=True)
    return start


def report(found: Sequence[JobStart], broken: Sequence[str]) -> None:
    """A table of moments for each size, and one of the aim."""
    record = Record(name="job_start", question="Where does each second of a job's start go?")
    for workers in dict.fromkeys(start.workers for start in found):
        record.add(_moments_table([start for start in found if start.workers == workers], workers))
    record.add(_aims_table(found, broken))
    record.promise(*aims(found))
    record.write()


def _moments_table(found: Sequence[JobStart], workers: int) -> Table:
    by_system = _by_system(found)
    columns = [Column(title=title, format=".2f") for name in by_system for title in (f"{name}, at", "took")]
    at = {name: medians([start.seconds for start in starts]) for name, starts in by_system.items()}
    took = {name: steps_between(seconds) for name, seconds in at.items()}
    seen = [moment for moment in StartMoment if any(moment in seconds for seconds in at.values())]
    return Table(
        name=f"job-start-{workers}",
        title=f"Seconds from apply, for the last of {workers} worker(s): medians",
        columns=[Column(title="moment"), *columns],
        rows=[[str(moment), *(table[name].get(moment) for name in at for table in (at, took))] for moment in seen],
        note="`took`: since the moment before it in time.",
    )


def _aims_table(found: Sequence[JobStart], broken: Sequence[str]) -> Table:
    rows: list[list[Value]] = []
    for workers in dict.fromkeys(start.workers for start in found):
        by_system = _by_system([start for start in found if start.workers == workers])
        base = median(start.whole for start in by_system[BARE])
        for name, starts in by_system.items():
            whole = [start.whole for start in starts]
            factor = median(whole) / base
            met = None if name == BARE else "yes" if factor <= AIM else "no"
            rows.append([workers, name, len(starts), *spread(whole), factor, met])
    return Table(
        name="job-start",
        title=f"From apply to the first step, beside bare pods that import torch; aim: {AIM} times",
        columns=[
            *(Column(title=title) for title in ("workers", "system", "starts")),
            *spread_columns("seconds", format=".2f"),
            Column(title="of bare", format=".2f"),
            Column(title="aim met"),
        ],
        rows=rows,
        note="\n".join(broken),
    )


def aims(found: Sequence[JobStart]) -> Iterator[Aim]:
    """Of the product's launchers, for each size."""
    for workers in dict.fromkeys(start.workers for start in found):
        whole = {
            name: median(start.whole for start in starts)
            for name, starts in _by_system([start for start in found if start.workers == workers]).items()
        }
        for name in (system.name for system in SYSTEMS if system.program == STANDBY):
            if name in whole and BARE in whole:
                what = f"first step after apply, {workers} workers, {name}, times that of bare pods that import torch"
                yield Aim(what=what, bound=AIM, measured=whole[name] / whole[BARE])


def _by_system(found: Sequence[JobStart]) -> dict[str, list[JobStart]]:
    return {name: [one for one in found if one.system == name] for name in dict.fromkeys(one.system for one in found)}


if __name__ == "__main__":
    main()
