"""Worlds that end again and again because the ranks ask for operations that do not fit together.

No process was lost then, and no new world helps: the script asks for the same again at the same step.
"""

import re
from typing import Final

from hvd_elastic.mpijob.contract import Exit, HvdElasticError

WORLDS: Final = 3
"""In a row, without a commit between them. One may be the last of a script that was being resized."""

_REFUSED: Final = re.compile(r"Mismatched |Rank zero tried to |\w+ is not supported with Join")
"""How the coordinator begins when it refuses an operation (`ConstructResponse` of horovod 0.28.1, `controller.cc`).
Whatever else a rank is told may come of a lost one."""

_SHUT_DOWN: Final = "Horovod has been shut down"
"""How the other ranks learn of a lost one (`SHUT_DOWN_ERROR` in horovod 0.28.1, `common/common.h`)."""
_SOURCE_LINE: Final = re.compile(r"\[[^\[\]\s]*\.(cc|h):\d+\] ")
"""Where in Gloo's sources an error arose, as it says."""


class OperationsError(HvdElasticError):
    """The ranks ask for operations that do not fit together, and will again."""

    exit_code = Exit.SCRIPT_MISTAKE


class FailedOperations:
    """Counts them for one process."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._count = 0

    def note(self, error: str, step: int) -> str | None:
        """A world has ended with `error`, after commit `step`. Return what is wrong with the script once it is sure."""
        if not is_refused(error):
            self._step, self._count = None, 0
            return None
        self._count = self._count + 1 if step == self._step else 1
        self._step = step
        if self._count < WORLDS:
            return None
        return (
            f"the ranks ask for operations that do not fit together, in {WORLDS} worlds one after the other, after "
            f"step {step}: {error} Every rank must ask for the same ones in the same order, with the same shapes"
        )


def is_refused(error: str) -> bool:
    """Whether Horovod has refused an operation, rather than lost a rank."""
    return _REFUSED.match(error) is not None


def failure_words(error: str) -> str:
    """Return what the log says of the error that has ended a world. The launcher alone knows of which process, and why.

    In place of Horovod's paragraph about all that can end a world, and of Gloo's own source lines.
    """
    if is_refused(error):
        return f"an operation has failed, back to the last commit: {error}"
    what = "" if error.startswith(_SHUT_DOWN) else f" ({_SOURCE_LINE.sub('', error)})"
    return f"a process was lost, back to the last commit: the launcher says which, and why{what}"
