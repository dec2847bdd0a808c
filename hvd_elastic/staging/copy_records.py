"""The records of what was copied: a file of JSON lines in the staged folder, appended to as each file is done."""

import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from hvd_elastic.staging.copy_plan import CopyRecord, FileFacts
from hvd_elastic.staging.source_manifest import key_problem
from hvd_elastic.system.atomic_file import replace_file

_FLUSH_SECONDS: Final = 1.0
"""A record waits so long for the next: a write of its own takes a tenth of a small object's copy."""


def facts_of(path: Path) -> FileFacts | None:
    """What the file system says of a regular file. None: there is none, though it may be a folder or a FIFO."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileFacts(size_bytes=found.st_size, mtime_ns=found.st_mtime_ns)


class CopyRecords:
    """The records below a folder. A file whose record a killed copier left unwritten, or unfinished, is compared."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: IO[str] | None = None
        self._flush_at = 0.0

    def load(self) -> dict[str, CopyRecord]:
        """The records by key; the last one of a key counts."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {record.key: record for record in _parsed(lines)}

    def rewrite(self, records: Mapping[str, CopyRecord]) -> None:
        """Keep exactly these records. Call it before `add`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, "".join(map(_line, records.values())))

    def add(self, record: CopyRecord) -> None:
        """Append a record. Threads may call it at the same time."""
        with self._lock:
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(_line(record))
            if time.monotonic() >= self._flush_at:
                self._file.flush()
                self._flush_at = time.monotonic() + _FLUSH_SECONDS

    def close(self) -> None:
        """Sync what was added, and close the file."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def _line(record: CopyRecord) -> str:
    return json.dumps([record.key, record.version, record.file.size_bytes, record.file.mtime_ns]) + "\n"


def _parsed(lines: list[str]) -> Iterator[CopyRecord]:
    """Whoever may write to the folder may write here, and files that records name are deleted: none outside of it."""
    for line in lines:
        try:
            key, version, size, mtime = json.loads(line)
            if isinstance(key, str) and not key_problem(key):
                yield CopyRecord(key=key, version=version, file=FileFacts(size_bytes=size, mtime_ns=mtime))
        except (ValueError, TypeError, RecursionError):
            continue
