"""What the launcher is told of a process that has ended: one that ends training with 0 alone is wrong."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from hvd_elastic.mpijob.contract import MISTAKE_LINE, TRAINING_FILE, Exit

_FIELDS: Final = 4
_MOST_BYTES: Final = 128
_OUT_OF_MEMORY: Final = (
    "the kernel has killed this process for want of memory: raise workers.memory, or let the script use less"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMark:
    """What a process last said of itself in its TRAINING_FILE."""

    rank: int
    size: int
    step: int
    """The last commit's; -1: none."""
    ordered: bool
    """Whether it has received SIGTERM."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None if this is no mark."""
        words = text.split()
        try:
            rank, size, step, ordered = map(int, words[:_FIELDS])
        except ValueError:
            return None
        return cls(rank=rank, size=size, step=step, ordered=ordered == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedExit:
    """The end of a process, as the launcher is told it."""

    code: int
    message: str = ""
    """For the job's log; empty: the process's own words are enough."""


def take_mark(run_dir: Path, pid: int) -> TrainingMark | None:
    """Read and remove the mark of a process that has ended; None: it was not in its training function."""
    file = run_dir / f"{TRAINING_FILE}.{pid}"
    with contextlib.suppress(OSError), file.open("rb") as opened:
        text = opened.read(_MOST_BYTES).decode("ascii", errors="replace")
        file.unlink()
        return TrainingMark.parse(text)
    return None


def reported_exit(code: int, mark: TrainingMark | None, *, oom: bool | None = None) -> ReportedExit:
    """What to report of a process that has ended with a shell's exit code.

    After SIGTERM any exit is a leave. Another process that stops training alone, and says that all is well, is wrong.
    `oom`: whether the kernel has killed it for want of memory; None: not known.
    """
    if mark is not None and mark.ordered:
        return ReportedExit(code=Exit.REMOVED)
    if oom:
        return ReportedExit(code=code, message=_OUT_OF_MEMORY)
    if mark is None or code != Exit.OK or mark.size == 1:
        return ReportedExit(code=code)
    when = f"after step {mark.step}" if mark.step >= 0 else "before its first commit"
    message = (
        f"rank {mark.rank} has ended its process with exit code 0 {when}, inside the training function, while "
        f"{mark.size} ranks train. A rank that stops alone leaves the others waiting: decide on all ranks alike with "
        "elastic.agree(...), and return from the training function"
    )
    return ReportedExit(code=Exit.SCRIPT_MISTAKE, message=f"{message}\n{MISTAKE_LINE}")
