"""What each way of training makes of recorded days: one job alone, then jobs that share what inference leaves.

    python -m benchmarks.simulated_traces

Reads the recorded traces of `../shared/traces`, from the repository's root; where they are not there, it says so. One
job: from one worker to as many as the trace ever has nodes, one GPU a worker. Several: eight jobs on a day of the
DLRM trace, as their pods compete and as the autoscaler divides the GPUs, less its reserve. What the oracle trains is
the best division of each moment's idle GPUs, without a stall. Aims: goodput of ours at least 97%; several jobs at least
95% of the oracle's progress; inference waits at the 99th percentile at most 0.5 s longer than without training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.replay.trace_window import TRACES, trace_path
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.decide.autoscale.decision import QUANTILE
from hvd_elastic.decide.simulate.autoscaling.inference_reserve import ReserveRule
from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.stalls import MEASURED
from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind, TraceChoice, recorded_day
from hvd_elastic.decide.simulate.workload import SimulatedJob, Way
from hvd_elastic.policy.job_demand import Speeds
from hvd_elastic.policy.sharing import share

HOUR: Final = 3600.0
SHARED_GPUS: Final = 3600
"""Some more than the DLRM trace's pods ask for on that day, so that a few hundred are left to training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTrace:
    """The whole of one trace."""

    file: str
    trace: str

    def day(self) -> Day:
        """As the simulation takes it."""
        choice = TraceChoice(names=[self.trace], seconds=float("inf"))
        return recorded_day([trace_path(self.file)], choice, NodeKind())


AUTOSCALED: Final = "ours, autoscaler"
PROGRESS: Final = "of the oracle's progress"
WAITS: Final = "inference waits longer, p99, s"
WAYS: Final = (Way.STATIC, Way.STOCK, Way.RESTART, Way.OURS)
DAYS: Final = (
    WholeTrace(file="spot_skypilot.csv", trace="preemption-4-node-aws-08-03-2023-us-east-2a_v100_1"),
    WholeTrace(file="spot_skypilot.csv", trace="availability-16-node-aws-08-27-2023-us-west-2a_v100_1"),
    WholeTrace(file="spot_gcloud_bamboo.csv", trace="gcloud-a100x1-east1b"),
    WholeTrace(file="spot_bamboo_events.csv", trace="bamboo-p3"),
    WholeTrace(file="spot_parcae_segments.csv", trace="trace_hh_55_65"),
    WholeTrace(file="spot_parcae_segments.csv", trace="trace_hl_15_25"),
    WholeTrace(file="spot_parcae_segments.csv", trace="trace_lh_80_90"),
    WholeTrace(file="spot_parcae_segments.csv", trace="trace_ll_10_11"),
)


def speeds(most: int, loss: float) -> Speeds:
    """Each worker more adds a share to the time of a sample."""
    return Speeds((0.0, *(100 * workers / (1 + loss * (workers - 1)) for workers in range(1, most + 1))))


def alone(day: Day) -> tuple[SimulatedJob, ...]:
    peak = max(sum(node.since <= other.since < node.until for node in day.nodes) for other in day.nodes)
    start = max(1, peak // 2)
    return (SimulatedJob(name="job", min=1, start=start, max=peak, speeds=speeds(peak, 0.01), samples_per_step=1024),)


def several(most: int) -> tuple[SimulatedJob, ...]:
    """They scale differently, and come one after the other."""
    return tuple(
        SimulatedJob(
            name=f"job-{number}",
            begins=600.0 * number,
            min=2,
            start=4,
            max=most,
            speeds=speeds(most, 0.002 * (number + 1)),
            samples_per_step=1024,
        )
        for number in range(8)
    )


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: the recorded traces are not in {TRACES}")
        return
    record = Record(name="simulated_traces", question="What does each way of training make of recorded days?")
    alone, shared = one_job(), shared_gpus()
    record.add(alone)
    record.add(shared)
    least = min(alone.figures(Way.OURS.value))
    progress = shared.figures(PROGRESS, rows=(AUTOSCALED,))[0]
    waits = shared.figures(WAITS, rows=(AUTOSCALED,))[0]
    record.promise(
        Aim(what="simulated goodput of ours, the worst day", bound=0.97, measured=least, is_least=True, format=".1%"),
        Aim(
            what="simulated progress of eight jobs, as a share of the oracle's",
            bound=0.95,
            measured=progress,
            is_least=True,
            format=".1%",
        ),
        Aim(what="seconds that simulated inference waits longer, p99", bound=0.5, measured=waits),
    )
    record.write()


def one_job() -> Table:
    """The goodput of one job alone, in each way."""
    rows: list[list[Value]] = []
    for chosen in DAYS:
        day = chosen.day()
        goodputs = [simulate(day, alone(day), way, MEASURED[way]).goodput for way in WAYS]
        rows.append([chosen.trace, day.seconds / HOUR, *goodputs])
    return Table(
        name="simulated-one-job",
        title="Simulated: useful share of the GPU-time that is given, one job alone",
        columns=(
            Column(title="trace"),
            Column(title="hours", format=".1f"),
            *(Column(title=way.value, format=".1%") for way in WAYS),
        ),
        rows=rows,
    )


def shared_gpus() -> Table:
    """Ours, with and without the autoscaler's decision, beside the oracle and the other ways."""
    choice = TraceChoice(begins=10 * 24 * HOUR, nodes=SHARED_GPUS)
    day = recorded_day([TRACES / "inference_pods_alibaba_dlrm_gpu.csv"], choice, NodeKind())
    jobs = several(64)
    oracle = simulate(day, jobs, Way.ORACLE, MEASURED[Way.ORACLE])
    reserve = ReserveRule(quantile=QUANTILE)
    plays: Sequence[tuple[str, Callable[[], DayOutcome]]] = (
        *((way.value, partial(simulate, day, jobs, way, MEASURED[way])) for way in WAYS),
        (AUTOSCALED, partial(simulate, day, jobs, Way.OURS, MEASURED[Way.OURS], share=share, reserve=reserve)),
    )
    rows: list[list[Value]] = []
    for title, play in plays:
        outcome = play()
        part = progress(outcome, jobs) / progress(oracle, jobs)
        waits = outcome.inference.p99 - oracle.inference.p99
        rows.append([title, part, waits, sum(job.resizes for job in outcome.jobs) / len(jobs)])
    return Table(
        name="simulated-shared",
        title="Simulated: eight jobs share what inference leaves, a day of the DLRM trace",
        columns=(
            Column(title=""),
            Column(title=PROGRESS, format=".1%"),
            Column(title=WAITS, format=".1f"),
            Column(title="resizes a job", format=".0f"),
        ),
        rows=rows,
    )


def progress(outcome: DayOutcome, jobs: Sequence[SimulatedJob]) -> float:
    """What the oracle maximises: seconds that each job would have needed with its max workers, in all."""
    return sum(done.samples / job.speeds[job.max] for done, job in zip(outcome.jobs, jobs, strict=True))


if __name__ == "__main__":
    main()
