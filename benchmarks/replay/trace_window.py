"""Windows of recorded traces, as the GPUs for which inference asks.

Of Parcae's traces all four windows are played: they are an hour each, of high and low availability with high and low
preemption. Of the others it is a rule that chooses (`middle_windows`): the trace with the most nodes, or the one of
inference pods, is cut from its beginning into windows of six hours; of those in which inference asks for anything, by
the number of changes, the two in the middle are played. Held out, until all else was done, were those that the rule
chooses of a trace of its own, and of the first half of the days of inference pods. Two are played in their own time, an
hour each: the hardest of Parcae's, and the earlier of two that the rule chooses when it cuts into hours.
"""

from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

from hvd_elastic.decide.simulate.traces.conversion import convert
from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_file import read_traces

TRACES: Final = Path(__file__).parents[2] / ".." / "shared" / "traces"
CONVERTED: Final = ("spot_bamboo_events.csv", "spot_parcae_segments.csv")
"""Those that say what came and went."""
SIZE: Final = 3
"""GPUs of the node, and the job's max: as benchmarks/cluster.py has it, which submits the jobs."""
CUT_HOURS: Final = 6.0
"""Of the windows that long traces are cut into. SkyPilot looked each 300 s, which are 2.5 s of 180."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """Some hours of a trace."""

    name: str
    file: str
    trace: str
    begins: float = 0.0
    """Hour of the trace."""
    hours: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGpus:
    """How many GPUs inference asks for from a second on."""

    second: float
    gpus: int


def _parcae(trace: str) -> TraceWindow:
    return TraceWindow(name=trace, file="spot_parcae_segments.csv", trace=trace)


def _cut(name: str, file: str, trace: str, begins: float, hours: float = CUT_HOURS) -> TraceWindow:
    return TraceWindow(name=name, file=file, trace=trace, begins=begins, hours=hours)


SKYPILOT: Final = ("spot_skypilot.csv", "availability-16-node-aws-08-27-2023-us-west-2a_v100_1")
DLRM: Final = ("inference_pods_alibaba_dlrm_gpu.csv", "inference_pods_alibaba_dlrm_gpu")
"""File and trace."""
PARCAE_WINDOWS: Final = (
    _parcae("trace_hh_55_65"),
    _parcae("trace_hl_15_25"),
    _parcae("trace_lh_80_90"),
    _parcae("trace_ll_10_11"),
)
WINDOWS: Final = (
    *PARCAE_WINDOWS,
    _cut("skypilot-114h", *SKYPILOT, 114.0),
    _cut("skypilot-324h", *SKYPILOT, 324.0),
    _cut("dlrm-228h", *DLRM, 228.0),
    _cut("dlrm-288h", *DLRM, 288.0),
)
SKYPILOT_HELD_OUT: Final = ("spot_skypilot.csv", "preemption-4-node-aws-08-03-2023-us-east-2a_v100_1")
HELD_OUT: Final = (
    _cut("skypilot4-90h", *SKYPILOT_HELD_OUT, 90.0),
    _cut("skypilot4-96h", *SKYPILOT_HELD_OUT, 96.0),
    _cut("dlrm-96h", *DLRM, 96.0),
    _cut("dlrm-108h", *DLRM, 108.0),
)
REAL_TIME: Final = (PARCAE_WINDOWS[0], _cut("dlrm-246h", *DLRM, 246.0, 1.0))
REAL_TIME_WAY: Final = "real time"
SETS: Final = {"held-out": HELD_OUT, "real-time": REAL_TIME}


def way_played(window: str, seconds: float) -> str:
    """What tells apart figures that cannot be compared: whether it was held out, and in what time it was played."""
    if any(each.name == window and each.hours * 3600 == seconds for each in REAL_TIME):
        return REAL_TIME_WAY
    held = "held out, " if window in {each.name for each in HELD_OUT} else ""
    return f"{held}{seconds:.0f} s each"


def chosen_windows(words: str) -> tuple[TraceWindow, ...]:
    """`words` is a number of windows, a set of them, or names with commas between. Raises ArgumentTypeError."""
    if words.isdigit():
        return WINDOWS[: int(words)]
    if words in SETS:
        return SETS[words]
    named = {window.name: window for window in (*WINDOWS, *HELD_OUT, *REAL_TIME)}
    names = words.split(",")
    if unknown := [name for name in names if name not in named]:
        raise ArgumentTypeError(f"no such windows: {', '.join(unknown)} (there are {', '.join(named)})")
    return tuple(named[name] for name in names)


def trace_of(window: TraceWindow) -> RecordedTrace:
    """Read the whole trace."""
    return next(trace for trace in read_traces(trace_path(window.file)) if trace.name == window.trace)


def trace_path(file: str) -> Path:
    """A recorded file as the simulator reads it."""
    if file not in CONVERTED:
        return TRACES / file
    path = Path("out/traces") / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(convert(TRACES / file), encoding="utf-8")
    return path


def asked(trace: RecordedTrace, window: TraceWindow, seconds: float) -> list[AskedGpus]:
    """What the window does not leave to training, scaled to SIZE GPUs and compressed to seconds; only changes.

    At the window's least, inference asks for nothing; at its most, it leaves one GPU.
    """
    begins, length = window.begins * 3600, window.hours * 3600
    changes = _taken(trace)
    before = [taken for moment, taken in changes if moment <= begins]
    inside = [(moment, taken) for moment, taken in changes if begins < moment < begins + length]
    taken = [(begins, before[-1] if before else 0), *inside]
    least, most = min(gpus for _, gpus in taken), max(gpus for _, gpus in taken)
    found: list[AskedGpus] = []
    for moment, count in taken:
        gpus = round((SIZE - 1) * (count - least) / max(1, most - least))
        if gpus != (found[-1].gpus if found else 0):
            found.append(AskedGpus(second=(moment - begins) / length * seconds, gpus=gpus))
    return found


def _taken(trace: RecordedTrace) -> list[tuple[float, int]]:
    """How many GPUs inference has from each moment on, but for a constant: a node that is there is one GPU fewer."""
    changes: Counter[float] = Counter()
    for node in trace.nodes:
        changes[node.since] -= 1
        changes[node.until] += 1
    for pod in trace.pods:
        changes[pod.created] += pod.gpus
        changes[pod.created + pod.seconds] -= pod.gpus
    moments = sorted(changes)
    return list(zip(moments, accumulate(changes[moment] for moment in moments), strict=True))


def middle_windows(trace: RecordedTrace, name: str, file: str, *, hours: float = CUT_HOURS) -> list[TraceWindow]:
    """The two windows of so many hours whose number of changes is in the middle, in the order of time."""
    found = sorted(_changes(trace, name, file, hours), key=lambda counted: counted[0])
    place = (len(found) - 1) // 2
    return sorted((window for _, window in found[place : place + 2]), key=lambda window: window.begins)


def _changes(trace: RecordedTrace, name: str, file: str, hours: float) -> Iterator[tuple[int, TraceWindow]]:
    """Windows in which inference asks for anything, each with how often."""
    for number in range(int(trace.seconds // (hours * 3600))):
        begins = number * hours
        window = _cut(f"{name}-{begins:.0f}h", file, trace.name, begins, hours)
        if changes := len(asked(trace, window, 1.0)):
            yield changes, window


def given(asks: Sequence[AskedGpus], seconds: float) -> float:
    """GPU-seconds that the window leaves to training."""
    moments = [0.0, *(ask.second for ask in asks), seconds]
    left = [SIZE, *(SIZE - ask.gpus for ask in asks)]
    return sum(gpus * (end - begin) for gpus, (begin, end) in zip(left, pairwise(moments), strict=True))
