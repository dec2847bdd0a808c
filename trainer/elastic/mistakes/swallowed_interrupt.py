"""The end of a world that a script has caught itself, such as with `except Exception` around a step.

HostsUpdatedInterrupt and HorovodInternalError must reach `elastic.run`. Caught, each later operation fails as well, and
one batch after the other is left out. So what ends a world is noted where it arises, and raised again at the next call
of ours until `elastic.run` has it.
"""

import ast
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hvd_elastic.trainer.elastic.mistakes.failed_operations import is_refused
from hvd_elastic.trainer.telemetry.code_places import script_lines

logger = logging.getLogger(__name__)


class SwallowedInterrupt:
    """What has ended the world of one process and `elastic.run` does not know yet."""

    def __init__(self) -> None:
        self._pending: Exception | None = None
        self._lines: tuple[tuple[str, int], ...] = ()
        self._has_said = False

    def note(self, error: Exception) -> None:
        """The world ends with this error, which is about to be raised. One that Horovod refuses ends none."""
        if self._pending is None and not is_refused(str(error)):
            self._pending = error
            self._lines = tuple(script_lines(threading.get_ident()))

    def taken(self) -> None:
        """A new world begins: it has arrived."""
        self._pending, self._lines = None, ()

    def raise_again(self) -> None:
        """Raise what the script has caught, if it has: HostsUpdatedInterrupt or HorovodInternalError."""
        from hvd_elastic.trainer.collectives.errors import HorovodInternalError, HostsUpdatedInterrupt

        error = self._pending
        if error is None:
            return
        if not self._has_said:
            self._has_said = True
            caught = next(_handlers(self._lines), None)
            where = f"the `except` at {caught}" if caught else "the script"
            logger.warning(
                "%s has caught %s, which ends this world: it is raised again. Let it pass: catch what your step "
                "raises, or put `except (HostsUpdatedInterrupt, HorovodInternalError): raise` before it",
                where,
                type(error).__name__,
            )
        if isinstance(error, HostsUpdatedInterrupt):
            raise HostsUpdatedInterrupt(skip_sync=False)
        raise HorovodInternalError(str(error))


def _handlers(lines: tuple[tuple[str, int], ...]) -> Iterator[str]:
    """Where each of these lines, the innermost first, is in a `try` with an `except`: `train.py:30`."""
    for file, line in lines:
        try:
            tree = ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
        except (OSError, SyntaxError, ValueError):
            continue
        around = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Try) and node.handlers and node.body[0].lineno <= line <= _last(node.body)
        ]
        for node in sorted(around, key=lambda node: -node.lineno):
            yield f"{Path(file).name}:{node.handlers[0].lineno}"


def _last(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or sys.maxsize


THIS_PROCESS: Final = SwallowedInterrupt()
"""Horovod's functions note what fails, and a State raises it again: a script makes each of them without the other."""
