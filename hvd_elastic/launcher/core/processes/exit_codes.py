"""What a worker process's exit code says about it."""

import signal
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.contract import Exit

CONNECTION_LOST: Final = -255
"""In place of an exit code: the command has none, because its host, or the connection to it, could not be reached or
was lost. ssh ends with 255 then, as does a script with `sys.exit(-1)`: who started the command tells them apart."""

NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
"""A shell's exit codes for a command that cannot be started."""

_SIGNAL_CODES: Final = range(128 + 1, 128 + signal.NSIG)


class ExitVerdict(StrEnum):
    """How the launcher treats a process that has ended."""

    SUCCESS = "success"
    REMOVED = "removed"
    """It left because the launcher told it to: never a failure."""
    HOST_CHANGE = "host-change"
    """Its world could not form, or its launcher went away: the same host may be used again after a moment."""
    MISTAKE = "mistake"
    """The script contains a mistake that would break the job later: the job ends with this code."""
    SCRIPT_ERROR = "script-error"
    """The script itself failed: it would fail on any host."""
    FAULT = "fault"
    """It computes or remembers wrongly: its pod must not be used again."""
    DEATH = "death"
    """Killed, out of memory, or its host or connection was lost: not the script's fault, but perhaps the host's."""


def judge(code: int, *, restart_errors: bool = False) -> ExitVerdict:
    """Classify an exit code, given as `subprocess` reports it (negative: a signal) or as a shell does (128 + signal).

    With `restart_errors` a script's error is treated as a death, which is what horovodrun does with every code.
    """
    known = {
        Exit.OK: ExitVerdict.SUCCESS,
        Exit.REMOVED: ExitVerdict.REMOVED,
        Exit.HOST_CHANGE: ExitVerdict.HOST_CHANGE,
        Exit.SCRIPT_MISTAKE: ExitVerdict.MISTAKE,
        Exit.WORKER_DIFFERS: ExitVerdict.FAULT,
    }
    if code in known:
        return known[Exit(code)]
    if code < 0 or code in _SIGNAL_CODES or restart_errors:
        return ExitVerdict.DEATH
    return ExitVerdict.SCRIPT_ERROR


def explain(code: int) -> str:
    """Put an exit code into words: `signal 9 (SIGKILL)`, `exit code 3`, `connection lost`."""
    if code == CONNECTION_LOST:
        return "connection lost"
    if code in _STARTS:
        return f"exit code {code} ({_STARTS[code]})"
    number = -code if code < 0 else code - 128
    if code < 0 or code in _SIGNAL_CODES:
        try:
            return f"signal {number} ({signal.Signals(number).name})"
        except ValueError:
            return f"exit code {code}"
    return f"exit code {code}"


_STARTS: Final = {NOT_EXECUTABLE: "the command cannot be executed", NOT_FOUND: "the command was not found"}
