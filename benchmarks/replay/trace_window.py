"""Windows of recorded traces, as the GPUs for which inference asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from hvd_elastic.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.simulate.traces.trace_file import read_traces

TRACES: Final = Path(__file__).parents[2] / ".." / "shared" / "traces"
SIZE: Final = 3
"""GPUs of the node, and the job's max: as benchmarks/cluster.py has it, which submits the jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """Some hours of a trace."""

    file: str
    trace: str
    begins: float = 0.0
    """Hour of the trace."""
    hours: float = 1.0


WINDOWS: Final = (
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_hh_55_65"),
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_hl_15_25"),
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_lh_80_90"),
    TraceWindow(file="spot_parcae_segments.csv", trace="trace_ll_10_11"),
    TraceWindow(file="spot_gcloud_bamboo.csv", trace="gcloud-a100x1-east1b", begins=4.7, hours=6.0),
    TraceWindow(file="spot_bamboo_events.csv", trace="bamboo-p3", begins=0.5, hours=4.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGpus:
    """How many GPUs inference asks for from a second on."""

    second: float
    gpus: int


def trace_of(window: TraceWindow) -> RecordedTrace:
    """Read the whole trace."""
    return next(trace for trace in read_traces(TRACES / window.file).traces if trace.name == window.trace)


def asked(trace: RecordedTrace, window: TraceWindow, seconds: float) -> list[AskedGpus]:
    """What the window does not leave to training, scaled to SIZE GPUs and compressed to seconds; only changes."""
    begins, length = window.begins * 3600, window.hours * 3600
    moments = sorted({begins, *(moment for node in trace.nodes for moment in (node.since, node.until))})
    inside = [moment for moment in moments if begins <= moment < begins + length]
    counts = [(moment, sum(node.since <= moment < node.until for node in trace.nodes)) for moment in inside]
    least, most = min(count for _, count in counts), max(count for _, count in counts)
    found: list[AskedGpus] = []
    for moment, count in counts:
        gpus = SIZE - 1 - round((SIZE - 1) * (count - least) / max(1, most - least))
        if gpus != (found[-1].gpus if found else 0):
            found.append(AskedGpus(second=(moment - begins) / length * seconds, gpus=gpus))
    return found


def given(asks: Sequence[AskedGpus], seconds: float) -> float:
    """GPU-seconds that the window leaves to training."""
    moments = [0.0, *(ask.second for ask in asks), seconds]
    left = [SIZE, *(SIZE - ask.gpus for ask in asks)]
    return sum(gpus * (end - begin) for gpus, (begin, end) in zip(left, pairwise(moments), strict=True))
