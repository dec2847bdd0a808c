"""The options of a benchmark that replays windows of recorded traces."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.replay.measured_window import Measured, kept
from benchmarks.replay.trace_window import TraceWindow, chosen_windows


def add_window_options(parser: argparse.ArgumentParser, windows: Sequence[TraceWindow]) -> None:
    """Let it run with other windows than these, and another length of them, or show what was measured before."""
    parser.add_argument("--seconds", type=float, default=240.0, help="that a window takes here")
    parser.add_argument("--windows", type=chosen_windows, default=windows, help="how many, or their names")
    parser.add_argument("--recorded", action="store_true", help="show what was measured before")


def measured_before(folder: Path) -> list[Measured]:
    """What `--recorded` shows. Ends the program if there is nothing."""
    return kept(folder) or sys.exit(f"nothing was measured before: {folder} has no records")
