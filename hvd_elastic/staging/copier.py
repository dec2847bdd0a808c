"""Copies objects into files, many at once: large objects in ranges, under a hidden name until the file is whole."""

import itertools
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from hvd_elastic.staging.content_digest import etag_in_parts, etag_whole, is_md5, md5_of, number_of_parts
from hvd_elastic.staging.copy_plan import CopyPlan, CopyRecord
from hvd_elastic.staging.copy_records import CopyRecords, facts_of
from hvd_elastic.staging.partial_file import PartialFile, partial_names
from hvd_elastic.staging.stage_errors import DigestError
from hvd_elastic.stores.bucket.listed_page import SourceObject
from hvd_elastic.stores.bucket.object_source import ObjectSource

RANGE_BYTES: Final = 16 << 20
"""Read at once by one thread, and held in memory. Larger objects are read by several threads."""
_Task = Callable[[], Iterable[Any]]
"""Returns tasks that follow from it."""


class Copier:
    """Carries out a plan. One for each staging.

    Small files are not synced one by one, which took most of their time: whoever calls syncs the file system before the
    marker. A small file whose bytes were lost with its node has not its size either (ext4 and XFS write bytes before
    the size, NFS when a file is closed), so it is copied again. A large one has its size at once, and is synced.
    """

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
        self._open = set[PartialFile]()
        self._prefix, self._numbers = uuid.uuid4().hex, itertools.count()
        """Of the names of small objects that arrive."""
        self._folders = set[Path]()
        self.unverified = 0
        """Objects whose bytes neither a checksum nor an ETag could vouch for."""

    def copy(self, plan: CopyPlan) -> None:
        """Copy what is to be copied. Raises the first StageError or OSError, after all threads have ended."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        kept = {name for one in (*plan.copy, *plan.compare) for name in partial_names(one)}
        for left in self._incoming.iterdir():  # of a copier that was killed
            if left.name not in kept:
                left.unlink()
        try:
            _run_all(self._tasks(plan), self._threads)
        finally:
            for arriving in self._open:
                arriving.close()

    def _tasks(self, plan: CopyPlan) -> Iterator[_Task]:
        for one in plan.compare:
            yield partial(self._compare, one)
        for one in plan.copy:
            yield self._copy(one)

    def _copy(self, one: SourceObject) -> _Task:
        is_small = one.size_bytes <= self._range_bytes
        return partial(self._copy_small if is_small else self._begin_large, one)

    def _compare(self, one: SourceObject) -> Iterable[_Task]:
        path = self._folder / one.key
        try:
            known = self._check(one, path)
        except DigestError:
            known = False
        if not known:
            return [self._copy(one)]
        for name in partial_names(one):
            (self._incoming / name).unlink(missing_ok=True)
        self._note(one, path)
        self._copied(1, one.size_bytes)
        return ()

    def _copy_small(self, one: SourceObject) -> Iterable[_Task]:
        data = self._source.read(one, 0, one.size_bytes)
        path = self._incoming / f"{self._prefix}-{next(self._numbers)}"
        _write(path, data)
        if not (is_md5(one.etag) and md5_of([data]) == one.etag) and not self._check(one, path):
            self._count_unverified()
        self._publish(one, path)
        self._copied(1, one.size_bytes)
        return ()

    def _begin_large(self, one: SourceObject) -> Iterable[_Task]:
        stored = self._source.stored_checksum(one)
        part_bytes = None
        if number_of_parts(one.etag) and not (stored and stored.parts is None):
            part_bytes = self._part_bytes(one, for_etag=stored is None)
        if stored and stored.parts and part_bytes is None:
            stored = None  # of parts whose lengths are not known
        arriving = PartialFile(self._incoming, one, range_bytes=self._range_bytes, part_bytes=part_bytes, stored=stored)
        with self._lock:
            self._open.add(arriving)
        copy = self._copy_range if stored is None else self._stream_range
        return [partial(copy, arriving, span) for span in arriving.ranges]

    def _stream_range(self, arriving: PartialFile, span: range) -> Iterable[_Task]:
        if arriving.kept(span) is None:
            arriving.write_pieces(span, self._source.pieces(arriving.object, span.start, len(span)))
        return self._end_range(arriving, span, arriving.arrived(span))

    def _copy_range(self, arriving: PartialFile, span: range) -> Iterable[_Task]:
        data = arriving.kept(span)
        if data is None:
            data = self._source.read(arriving.object, span.start, len(span))
            arriving.write(span, data)
        return self._end_range(arriving, span, arriving.arrived(span, data))

    def _end_range(self, arriving: PartialFile, span: range, is_whole: bool) -> Iterable[_Task]:
        if is_whole:
            self._finish_large(arriving)
        self._copied(int(is_whole), len(span))
        return ()

    def _finish_large(self, arriving: PartialFile) -> None:
        one = arriving.object
        if not arriving.is_verified:
            is_sure = arriving.has_checksum or arriving.in_parts
            if is_sure or (is_md5(one.etag) and self._source.part_bytes(one) is not None):
                arriving.forget()
                raise DigestError(_damaged(one))
            self._count_unverified()
        arriving.sync()
        self._publish(one, arriving.path)
        arriving.forget()
        arriving.close()
        with self._lock:
            self._open.discard(arriving)

    def _count_unverified(self) -> None:
        with self._lock:
            self.unverified += 1

    def _check(self, one: SourceObject, path: Path) -> bool:
        """Whether the file's bytes are the object's. False: its ETag cannot say. Raises DigestError if they are not."""
        in_parts = number_of_parts(one.etag) is not None
        with path.open("rb") as file:
            if is_md5(one.etag) and etag_whole(file) == one.etag:
                return True
            part_bytes = self._part_bytes(one) if in_parts else self._source.part_bytes(one)
            if part_bytes is None or not (in_parts or is_md5(one.etag)):
                return False
            file.seek(0)
            if in_parts and etag_in_parts(file, size_bytes=one.size_bytes, part_bytes=part_bytes) == one.etag:
                return True
        raise DigestError(_damaged(one))

    def _part_bytes(self, one: SourceObject, *, for_etag: bool = True) -> int | None:
        """Length of each part but the last of a multipart upload. None: they differ, or as ObjectSource says."""
        part_bytes = self._source.part_bytes(one, for_etag=for_etag)
        is_even = part_bytes and -(-one.size_bytes // part_bytes) == number_of_parts(one.etag)
        return part_bytes if is_even else None

    def _publish(self, one: SourceObject, path: Path) -> None:
        target = self._folder / one.key
        if target.parent not in self._folders:  # on a network file system each look is a request
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(target.parent)
        path.rename(target)
        self._note(one, target)

    def _note(self, one: SourceObject, path: Path) -> None:
        if (file := facts_of(path)) is not None:
            self._records.add(CopyRecord(key=one.key, etag=one.etag, file=file))


def _write(path: Path, data: bytes) -> None:
    """As `path.write_bytes`, with half of its system calls."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)


def _damaged(one: SourceObject) -> str:
    return f"{one.key}: the bytes that arrived are not those of ETag {one.etag}: stage again"


def _run_all(tasks: Iterable[_Task], threads: int) -> None:
    """Run all tasks and what follows from them, `threads` of them at once; what follows comes first.

    The first error keeps the others from beginning, and is raised.
    """
    changed, todo, follow = threading.Condition(), iter(tasks), deque[_Task]()
    running, failed = 0, False

    def next_task() -> _Task | None:
        nonlocal running
        with changed:
            while not failed:
                task = follow.popleft() if follow else next(todo, None)
                if task is not None:
                    running += 1
                    return task
                if not running:
                    return None
                changed.wait()  # a task that runs may have others follow
        return None

    def work() -> None:
        nonlocal running, failed
        while (task := next_task()) is not None:
            more: Iterable[_Task] = ()
            try:
                more = task()
            except BaseException:
                failed = True
                raise
            finally:
                with changed:
                    running -= 1
                    follow.extend(more)
                    changed.notify_all()

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
