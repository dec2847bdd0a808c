"""The demo's report: tables for people, the same values as JSON for programs, and a picture of them over time."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hvd_elastic.local.demo.demo_runs import DemoRun
from hvd_elastic.local.demo.timeline import Pause

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def as_data(runs: Sequence[DemoRun]) -> list[dict[str, Any]]:
    """Plain values for JSON, one mapping per run. All times are in seconds."""
    return [
        {
            "run": run.title,
            "seconds": round(run.seconds, 3),
            "steps": len({step.step for step in run.timeline.steps}),
            "steps_lost": run.timeline.steps_lost,
            "samples_due": run.coverage.due,
            "samples_seen_once": run.coverage.once,
            "samples_repeated": run.coverage.repeated,
            "samples_missed": run.coverage.missed,
            "accuracy": run.accuracy,
            "pauses": [
                {"before": pause.before, "after": pause.after, "seconds": round(pause.seconds, 3)}
                for pause in run.timeline.pauses
            ],
        }
        for run in runs
    ]


def print_report(runs: Sequence[DemoRun], console: Console) -> None:
    """Print two tables: the runs, and the pause of each resize."""
    console.print(_runs(runs), _pauses(runs))


def _runs(runs: Sequence[DemoRun]) -> Table:
    table = Table(title=f"The same training, {len(runs)} times", title_justify="left")
    table.add_column("")
    for run in runs:
        table.add_column(run.title, justify="right")

    def row(name: str, values: Sequence[str]) -> None:
        table.add_row(name, *values)

    row("steps lost", [str(run.timeline.steps_lost) for run in runs])
    row("samples due", [str(run.coverage.due) for run in runs])
    row("  seen exactly once", [str(run.coverage.once) for run in runs])
    row("  seen again", [str(run.coverage.repeated) for run in runs])
    row("  never seen", ["-" if run.accuracy is None else str(run.coverage.missed) for run in runs])
    row("accuracy on the test set", ["ended early" if run.accuracy is None else f"{run.accuracy:.3f}" for run in runs])
    row("resizes", [str(len(run.timeline.pauses)) for run in runs])
    row("median pause, growing", [_median([p for p in run.timeline.pauses if p.grows]) for run in runs])
    row("median pause, shrinking", [_median([p for p in run.timeline.pauses if not p.grows]) for run in runs])
    row("seconds of training", [f"{run.seconds:.1f}" for run in runs])
    return table


def _pauses(runs: Sequence[DemoRun]) -> Table:
    table = Table(title="Pause of each resize", title_justify="left")
    disturbed = [run for run in runs if run.timeline.pauses]
    for run in disturbed:
        table.add_column(run.title, justify="right")
    rows = max((len(run.timeline.pauses) for run in disturbed), default=0)
    for index in range(rows):
        table.add_row(*(_pause(run.timeline.pauses[index : index + 1]) for run in disturbed))
    return table


def _pause(pauses: Sequence[Pause]) -> str:
    return "".join(f"{pause.before} → {pause.after}: {pause.seconds:.2f} s" for pause in pauses)


def _median(pauses: Sequence[Pause]) -> str:
    return f"{median(pause.seconds for pause in pauses):.2f} s" if pauses else "-"


def draw(runs: Sequence[DemoRun], *, hosts: int, folder: Path, stem: str = "demo") -> tuple[Path, Path]:
    """Draw `runs` below each other over one time axis. Returns the SVG file and the PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.2 * len(runs)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = list(figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0])
    for axis, run in zip(axes, runs, strict=True):
        _draw_run(axis, run, hosts)
    axes[-1].set_xlabel("seconds since the first step")
    files = folder / f"{stem}.svg", folder / f"{stem}.png"
    for file in files:
        figure.savefig(file, dpi=110)
    return files


def _draw_run(axis: "Axes", run: DemoRun, hosts: int) -> None:
    timeline = run.timeline
    begin = timeline.steps[0].time
    seconds = [step.time - begin for step in timeline.steps]
    capacity_at = [max(0.0, at - begin) for at, _ in run.capacity] + [seconds[-1]]
    capacity = [left for _, left in run.capacity]
    axis.fill_between(
        capacity_at, [*capacity, capacity[-1]], step="post", color="#d8e8f5", label="capacity left by inference"
    )
    axis.step(seconds, [step.size for step in timeline.steps], where="post", color="#1f5fa8", label="world size")
    for number, pause in enumerate(timeline.pauses):
        start = pause.time - begin
        axis.axvspan(
            start, start + pause.seconds, color="#d62728", alpha=0.55, lw=0.8, label=None if number else "pause"
        )
    axis.set(title=run.title, ylabel="workers", ylim=(0, hosts + 0.5))
    losses = [(at, step.loss) for at, step in zip(seconds, timeline.steps, strict=True) if step.loss is not None]
    if losses:
        other = axis.twinx()
        other.plot(*zip(*losses, strict=True), color="#777777", lw=0.7, alpha=0.8)
        other.set(ylabel="loss", yscale="log")
    axis.legend(loc="lower right", fontsize=8)
