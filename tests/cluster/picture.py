"""A scenario as a picture: a lane for each pod, the size of the training above them, what the test did as lines."""

import json
from pathlib import Path
from typing import Any

from testbed.cluster.timeline import Timeline
from testbed.cluster.training import Account

_COLOURS = {"Pending": "#cccccc", "Running": "#9ecae1", "Ready": "#3182bd", "Leaving": "#fd8d3c", "Failed": "#de2d26"}


def draw(timeline: Timeline) -> Path:
    """Draw what was recorded into the timeline's folder; return the file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(11, 6), height_ratios=(1, 2))
    _draw_sizes(above, Account.read(timeline.folder / "events"), timeline.began)
    _draw_pods(below, timeline)
    for mark in _lines(timeline.folder / "marks.jsonl"):
        for axes in (above, below):
            axes.axvline(mark["time"] - timeline.began, color="#555555", linewidth=0.7, linestyle=":")
        above.text(mark["time"] - timeline.began, above.get_ylim()[1], mark["mark"], fontsize=7, rotation=20)
    below.set_xlabel("seconds")
    target = timeline.folder / "timeline.png"
    figure.savefig(target, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return target


def _draw_sizes(axes: Any, account: Account, began: float) -> None:
    axes.step([step["time"] - began for step in account.steps], [step["size"] for step in account.steps], where="post")
    axes.set_ylabel("world size")
    axes.set_ylim(bottom=0)


def _draw_pods(axes: Any, timeline: Timeline) -> None:
    lives = list(dict.fromkeys((seen.pod, seen.uid) for seen in timeline.pods))
    end = timeline.pods[-1].time if timeline.pods else timeline.began
    for lane, life in enumerate(lives):
        seen = [each for each in timeline.pods if (each.pod, each.uid) == life]
        until = [each.time for each in seen[1:]] + [seen[-1].time if seen[-1].change == "DELETED" else end]
        for each, last in zip(seen, until, strict=True):
            state = "Leaving" if each.leaving else "Ready" if each.ready else each.phase
            axes.barh(lane, last - each.time, left=each.time - timeline.began, color=_COLOURS.get(state, "#a1d99b"))
    axes.set_yticks(range(len(lives)), [f"{pod} {uid[:4]}" for pod, uid in lives], fontsize=7)
    axes.invert_yaxis()


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
