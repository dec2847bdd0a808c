"""Processes of this machine, as /proc shows them (proc_pid_stat(5))."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """The fields of /proc/PID/stat that this project uses."""

    state: str
    """One letter: `R` runs, `S` sleeps, `T` is stopped, `Z` is a zombie."""
    parent: int
    """Process id of the parent."""
    cpu_ticks: int
    """CPU time in user and kernel mode together, in clock ticks."""
    start_ticks: int
    """When the process was started, in clock ticks since boot. With the process id it identifies a process uniquely."""


def read_stat(pid: int) -> ProcessStat | None:
    """Read /proc/`pid`/stat; None if there is no such process, or if its /proc is hidden from this user (hidepid)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name in parentheses may hold anything, spaces and parentheses too.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(
        state=fields[0],
        parent=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
    )
