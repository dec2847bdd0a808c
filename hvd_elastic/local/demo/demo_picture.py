"""The report's picture: capacity, world size, loss and pauses over time, as SVG and PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hvd_elastic.local.demo.demo_runs import DemoRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
