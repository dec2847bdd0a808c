"""The options of a benchmark that replays windows of recorded traces."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.replay.measured_window import Measured
from benchmarks.replay.trace_window import SETS, TraceWindow, chosen_windows
from benchmarks.report.machine import product_digest
from benchmarks.report.measurements import measured_of


def add_window_options(parser: argparse.ArgumentParser, windows: Sequence[TraceWindow]) -> None:
    """Let it run with other windows than these, and another length of them, or show what was measured before."""
    parser.add_argument("--seconds", type=float, default=180.0, help="that a window takes here")
    parser.add_argument("--real-time", action="store_true", help="each window takes the hours that it took")
    parser.add_argument(
        "--windows", type=chosen_windows, default=windows, help=f"how many, {', '.join(SETS)}, or names"
    )
    parser.add_argument("--resume", action="store_true", help="leave out what was measured before of this product")
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")


def seconds_of(window: TraceWindow, flags: argparse.Namespace) -> float:
    """How long the window takes here."""
    return window.hours * 3600 if flags.real_time else float(flags.seconds)


def is_measured(folder: Path, flags: argparse.Namespace, window: TraceWindow, system: str) -> bool:
    """Whether `--resume` leaves it out: it was measured with the product as it is now, in as many seconds."""
    wanted = (window.name, system, seconds_of(window, flags))
    known = measured_of(product_digest(), folder, Measured) if flags.resume else ()
    return wanted in {(one.window, one.system, one.seconds) for one in known}
