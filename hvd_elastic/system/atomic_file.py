"""Files that are replaced whole: a reader sees the old content or the new one, never a part of either."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Replace `path` with a file that holds `content`, by rename(2). Raises OSError; then `path` is as it was.

    The new file is written beside `path` under a hidden name with this process's id in it, so two processes may replace
    one file. It is not synced to disk: after a crash of the machine `path` may be missing or empty.

    Args:
        path: the file to replace. Its folder must exist.
        content: text is written as UTF-8.
        mode: permission bits, which the umask does not change; None leaves them to the umask.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        if mode is not None:
            new.chmod(mode)
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


class WriteFaults:
    """Says once that something cannot be written, and once that it is written again."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what, self._log = what, log
        self._is_failing = False

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell of an OSError in the block, and go on behind it."""
        try:
            yield
        except OSError as error:
            if not self._is_failing:
                self._log.warning("%s cannot be written, and is tried again: %s", self._what, error.strerror or error)
            self._is_failing = True
            return
        if self._is_failing:
            self._log.warning("%s is written again", self._what)
        self._is_failing = False
