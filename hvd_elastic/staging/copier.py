"""Copies objects into files, many at once: large objects in ranges, under a hidden name until the file is whole."""

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from hvd_elastic.staging.content_digest import etag_in_parts, etag_whole, is_md5, md5_of, number_of_parts
from hvd_elastic.staging.copy_plan import CopyPlan, CopyRecord
from hvd_elastic.staging.copy_records import CopyRecords, facts_of
from hvd_elastic.staging.object_source import ObjectSource
from hvd_elastic.staging.source_manifest import SourceObject
from hvd_elastic.staging.stage_errors import DigestError

RANGE_BYTES: Final = 16 << 20
"""Read at once by one thread, and held in memory. Larger objects are read by several threads."""
_Task = Callable[[], None]


class Copier:
    """Carries out a plan. One for each staging."""

    def __init__(
        self,
        source: ObjectSource,
        folder: Path,
        incoming: Path,
        records: CopyRecords,
        *,
        threads: int,
        range_bytes: int = RANGE_BYTES,
        copied: Callable[[int, int], None],
    ) -> None:
        """`copied` is told the objects and the bytes that came in, from any thread."""
        self._source, self._folder, self._incoming, self._records = source, folder, incoming, records
        self._threads, self._range_bytes, self._copied = threads, range_bytes, copied
        self._lock = threading.Lock()
        self.unverified = 0
        """Objects whose bytes no ETag could vouch for."""

    def run(self, plan: CopyPlan) -> None:
        """Copy what is to be copied. Raises the first StageError or OSError, after all threads have ended."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        for left in self._incoming.iterdir():  # of a copier that was killed
            left.unlink()
        _run_all(self._tasks(plan), self._threads)

    def _tasks(self, plan: CopyPlan) -> Iterator[_Task]:
        for one in plan.compare:
            yield partial(self._compare, one)
        for one in plan.copy:
            yield from self._copies(one)

    def _copies(self, one: SourceObject) -> Iterator[_Task]:
        if one.size_bytes <= self._range_bytes:
            yield partial(self._copy_small, one)
            return
        incoming = _LargeFile(self._new_path(), one, self._range_bytes)
        for offset in incoming.offsets:
            yield partial(self._copy_range, incoming, offset)

    def _compare(self, one: SourceObject) -> None:
        path = self._folder / one.key
        try:
            known = self._check(one, path)
        except DigestError:
            known = False
        if known:
            self._note(one, path)
            self._copied(1, one.size_bytes)
        else:
            for task in self._copies(one):
                task()

    def _copy_small(self, one: SourceObject) -> None:
        data = self._source.read(one, 0, one.size_bytes)
        path = self._new_path()
        path.write_bytes(data)
        if not (is_md5(one.etag) and md5_of([data]) == one.etag):
            self._vouch(one, path)
        self._publish(one, path)
        self._copied(1, one.size_bytes)

    def _copy_range(self, incoming: "_LargeFile", offset: int) -> None:
        one = incoming.object
        length = min(self._range_bytes, one.size_bytes - offset)
        is_last = incoming.write(offset, self._source.read(one, offset, length))
        if is_last:
            self._vouch(one, incoming.path)
            self._publish(one, incoming.path)
        self._copied(int(is_last), length)

    def _vouch(self, one: SourceObject, path: Path) -> None:
        if not self._check(one, path):
            with self._lock:
                self.unverified += 1

    def _check(self, one: SourceObject, path: Path) -> bool:
        """Whether the file's bytes are the object's. False: its ETag cannot say. Raises DigestError if they are not."""
        with path.open("rb") as file:
            if is_md5(one.etag) and etag_whole(file) == one.etag:
                return True
            part_bytes = self._source.part_bytes(one)
            count = number_of_parts(one.etag)
            even = count is not None and bool(part_bytes) and -(-one.size_bytes // (part_bytes or 1)) == count
            if part_bytes is None or not (is_md5(one.etag) or even):
                return False
            file.seek(0)
            if even and etag_in_parts(file, size_bytes=one.size_bytes, part_bytes=part_bytes) == one.etag:
                return True
        raise DigestError(f"{one.key}: the bytes that arrived are not those of ETag {one.etag}: stage again")

    def _publish(self, one: SourceObject, path: Path) -> None:
        target = self._folder / one.key
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.rename(target)
        self._note(one, target)

    def _note(self, one: SourceObject, path: Path) -> None:
        if (file := facts_of(path)) is not None:
            self._records.add(CopyRecord(key=one.key, etag=one.etag, file=file))

    def _new_path(self) -> Path:
        return self._incoming / uuid.uuid4().hex


class _LargeFile:
    """A file that several threads write at once."""

    def __init__(self, path: Path, one: SourceObject, range_bytes: int) -> None:
        self.path, self.object = path, one
        self.offsets = range(0, one.size_bytes, range_bytes)
        self._left = len(self.offsets)
        self._lock = threading.Lock()
        self.path.touch()

    def write(self, offset: int, data: bytes) -> bool:
        """Write a range. Returns whether it was the last one that was missing."""
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        with self._lock:
            self._left -= 1
            return self._left == 0


def _run_all(tasks: Iterable[_Task], threads: int) -> None:
    """Run all tasks, `threads` of them at once. The first error keeps the others from beginning, and is raised."""
    lock, todo = threading.Lock(), iter(tasks)
    failed = threading.Event()

    def work() -> None:
        while not failed.is_set():
            with lock:
                task = next(todo, None)
            if task is None:
                return
            try:
                task()
            except BaseException:
                failed.set()
                raise

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
