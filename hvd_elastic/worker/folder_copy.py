"""A folder whose files grow, copied to one that takes whole files only: a bucket that a node mounts."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.system.background_threads import start_thread

log = logging.getLogger(__name__)

COPY_SECONDS: Final = 30.0
"""From the end of one copy to the next. TensorBoard looks for news as often by default."""
_REST: Final = 10
"""So many times as long as a copy took is the least time until the next: files grow, and are copied whole."""
LAST_SECONDS: Final = 2.0
"""So long may the last copy take: whoever waits for the pod's GPU waits for it."""


class FolderCopy:
    """Copies new and changed files, in a thread: a bucket that does not answer must hold up nobody."""

    def __init__(self, source: Path, target: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._target, self._clock = source, target, clock
        self._copied: dict[Path, tuple[int, int]] = {}
        """Size and time of each file as it was copied, by its path below the source."""
        self._failing = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Copy now and then."""
        self._thread = start_thread("folder-copy", self._run, log=log)

    def finish(self, seconds: float = LAST_SECONDS) -> None:
        """Copy what is new for the last time, and wait for it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                log.warning("%s does not take the last events within %g s", self._target, seconds)

    def copy(self) -> None:
        """Copy each file that has changed, whole: it is opened to be replaced, and neither appended to nor renamed.

        A file that cannot be copied is tried again at the next copy, and the first of several errors is said.
        """
        error: OSError | None = None
        for path in sorted(self._source.rglob("*")):
            try:
                if path.is_symlink() or not path.is_file():
                    continue
                name, stat = path.relative_to(self._source), path.stat()
                if self._copied.get(name) == (stat.st_size, stat.st_mtime_ns):
                    continue
                (self._target / name).parent.mkdir(parents=True, exist_ok=True)
                with path.open("rb") as source, (self._target / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
                self._copied[name] = (stat.st_size, stat.st_mtime_ns)
            except OSError as failure:
                error = error or failure
        if error is not None and not self._failing:
            log.warning("TensorBoard events cannot be copied to %s, and are tried again: %s", self._target, error)
        self._failing = error is not None

    def _run(self) -> None:
        wait = COPY_SECONDS
        while not self._ended.wait(wait):
            began = self._clock()
            self.copy()
            wait = max(COPY_SECONDS, _REST * (self._clock() - began))
        self.copy()
