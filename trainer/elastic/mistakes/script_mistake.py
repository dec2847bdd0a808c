"""The end of a process whose script is wrong: sentences on stderr, and an exit code that ends the job."""

import contextlib
import os
import sys
from collections.abc import Sequence

from hvd_elastic.mpijob.contract import MISTAKE_LINE, Exit


def leave_if(mistakes: Sequence[str]) -> None:
    """End the program if there are any mistakes. Raises SystemExit."""
    if mistakes:
        say(mistakes)
        raise SystemExit(int(Exit.SCRIPT_MISTAKE))


def end_process(mistake: str) -> None:
    """End the process, whatever its main thread waits in. Any thread may call it."""
    say([mistake])
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(Exit.SCRIPT_MISTAKE)


def say(mistakes: Sequence[str]) -> None:
    """Print them. Whoever calls this ends the process with Exit.SCRIPT_MISTAKE."""
    lines = [*(f"hvd-elastic: {mistake}" for mistake in mistakes), MISTAKE_LINE]
    with contextlib.suppress(OSError, ValueError):
        print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201
