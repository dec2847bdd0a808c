"""The options of a benchmark that replays windows of recorded traces."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.replay.measured_window import Measured, kept
from benchmarks.replay.trace_window import SETS, TraceWindow, chosen_windows
from benchmarks.report.machine import product_digest


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
    wanted = (window.name, system, seconds_of(window, flags), product_digest())
    known = kept(folder) if flags.resume else ()
    return wanted in {(one.window, one.system, one.seconds, one.product) for one in known}


def measured_before(folder: Path) -> tuple[list[Measured], list[str]]:
    """What `--recorded` shows, of the product that was measured last, and what that leaves out.

    Ends the program if there is nothing.
    """
    found = kept(folder) or sys.exit(f"nothing was measured before: {folder} has no records")
    product = max(found, key=lambda one: one.began).product
    others = [f"left out, of another product: {one.window}, {one.system}" for one in found if one.product != product]
    return [one for one in found if one.product == product], others
