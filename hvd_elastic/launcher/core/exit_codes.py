"""What a worker process's exit code says about it."""

import signal
from enum import StrEnum

from hvd_elastic.mpijob.contract import Exit


class ExitVerdict(StrEnum):
    """How an ended process is treated."""

    SUCCESS = "success"
    REMOVED = "removed"
    """It left because it was told to: never a failure."""
    HOST_CHANGE = "host-change"
    """Its world could not form or its launcher went: the same host may be used again after a moment."""
    MISTAKE = "mistake"
    """A mistake in the script that would break the job later: the job ends with this code."""
    SCRIPT_ERROR = "script-error"
    """The script's own doing: it would fail on any host."""
    DEATH = "death"
    """Killed, out of memory, its host or the connection lost: the script is not to blame, the host may be."""


def judge(code: int, *, restart_errors: bool = False) -> ExitVerdict:
    """The verdict on an exit code as `subprocess` reports it (negative: a signal) or as a shell does (128 + signal).

    126 and 127 are the remote shell's own (the command could not be started), 255 is ssh's. With `restart_errors` a
    script's error is treated as a death, which is what horovodrun does with every code.
    """
    known = {
        Exit.OK: ExitVerdict.SUCCESS,
        Exit.REMOVED: ExitVerdict.REMOVED,
        Exit.HOST_CHANGE: ExitVerdict.HOST_CHANGE,
        Exit.SCRIPT_MISTAKE: ExitVerdict.MISTAKE,
    }
    if code in known:
        return known[Exit(code)]
    if code < 0 or code >= 126 or restart_errors:
        return ExitVerdict.DEATH
    return ExitVerdict.SCRIPT_ERROR


def explain(code: int) -> str:
    """An exit code in words: `signal 9 (SIGKILL)`, `exit code 3`, `ssh lost (255)`."""
    if code == 255:
        return "connection lost (255)"
    number = -code if code < 0 else code - 128
    if code < 0 or code > 128:
        try:
            return f"signal {number} ({signal.Signals(number).name})"
        except ValueError:
            return f"exit code {code}"
    return f"exit code {code}"
