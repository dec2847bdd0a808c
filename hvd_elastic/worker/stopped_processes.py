"""Which of a pod's processes are stopped for good: a stopped process holds up everybody who waits for it.

A process is stopped by SIGSTOP or SIGTSTP, or because it reads from or writes to a terminal that is not its own. One
that a debugger holds is in another state (`t`, proc_pid_stat(5)) and is left alone.
"""

from collections.abc import Mapping
from typing import Final

from hvd_elastic.system.processes import read_stat

STOPPED_SECONDS: Final = 10.0
"""So long may a process be stopped."""
LOOK_SECONDS: Final = 1.0


class StoppedProcesses:
    """Remembers since when each process has been stopped."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def overdue(self, stopped: Mapping[int, bool], now: float) -> list[int]:
        """Process ids of those that have been stopped for STOPPED_SECONDS, at every look.

        Args:
            stopped: whether each process is stopped now, by process id.
            now: seconds on a steady clock.
        """
        self._since = {pid: self._since.get(pid, now) for pid, is_stopped in stopped.items() if is_stopped}
        return [pid for pid, since in self._since.items() if now - since >= STOPPED_SECONDS]


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped now."""
    stat = read_stat(pid)
    return stat is not None and stat.state == "T"
