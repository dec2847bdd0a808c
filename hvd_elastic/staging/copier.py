"""Copies objects into files, many at once: large objects in ranges, under a hidden name until the file is whole."""

import itertools
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from hvd_elastic.staging.copy_plan import CopyPlan, CopyRecord
from hvd_elastic.staging.copy_records import CopyRecords, facts_of
from hvd_elastic.staging.partial_file import PartialFile, partial_names
from hvd_elastic.staging.stage_errors import DigestError
from hvd_elastic.stores.object_requests import ListedObject

if TYPE_CHECKING:
    from hvd_elastic.stores.data_set.object_source import ObjectSource

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
        source: "ObjectSource",
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
        """Objects of whose bytes the store says nothing."""

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

    def _copy(self, one: ListedObject) -> _Task:
        is_small = one.size_bytes <= self._range_bytes
        return partial(self._copy_small if is_small else self._begin_large, one)

    def _compare(self, one: ListedObject) -> Iterable[_Task]:
        path = self._folder / one.key
        with path.open("rb") as file:
            is_known = self._verify(one, file)
        if not is_known:
            return [self._copy(one)]
        for name in partial_names(one):
            (self._incoming / name).unlink(missing_ok=True)
        self._note(one, path)
        self._copied(1, one.size_bytes)
        return ()

    def _copy_small(self, one: ListedObject) -> Iterable[_Task]:
        data = b"".join(self._source.pieces(one, 0, one.size_bytes))
        is_whole = self._verify(one, BytesIO(data))
        if is_whole is False:
            raise DigestError(_damaged(one))
        if is_whole is None:
            self._count_unverified()
        path = self._incoming / f"{self._prefix}-{next(self._numbers)}"
        _write(path, data)
        self._publish(one, path)
        self._copied(1, one.size_bytes)
        return ()

    def _begin_large(self, one: ListedObject) -> Iterable[_Task]:
        digest = self._source.digest_of(one)
        arriving = PartialFile(self._incoming, one, range_bytes=self._range_bytes, digest=digest)
        with self._lock:
            self._open.add(arriving)
        return [partial(self._copy_range, arriving, span) for span in arriving.ranges]

    def _copy_range(self, arriving: PartialFile, span: tuple[int, int]) -> Iterable[_Task]:
        length = span[1] - span[0]
        is_last = arriving.arrive(span, self._source.pieces(arriving.object, span[0], length))
        if is_last:
            self._finish_large(arriving)
        self._copied(int(is_last), length)
        return ()

    def _finish_large(self, arriving: PartialFile) -> None:
        one = arriving.object
        if arriving.digest is None:
            self._count_unverified()
        elif not arriving.is_whole():
            arriving.forget()
            raise DigestError(_damaged(one))
        arriving.sync()
        self._publish(one, arriving.path)
        arriving.forget()
        arriving.close()
        with self._lock:
            self._open.discard(arriving)

    def _count_unverified(self) -> None:
        with self._lock:
            self.unverified += 1

    def _verify(self, one: ListedObject, file: BinaryIO) -> bool | None:
        """Whether a file's bytes are the object's. None: the store does not say."""
        if one.digest and one.digest.is_of(file, one.size_bytes):
            return True
        digest = self._source.digest_of(one)  # the listing may say nothing, or nothing of the bytes
        file.seek(0)
        return digest.is_of(file, one.size_bytes) if digest else None

    def _publish(self, one: ListedObject, path: Path) -> None:
        target = self._folder / one.key
        if target.parent not in self._folders:  # on a network file system each look is a request
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(target.parent)
        path.rename(target)
        self._note(one, target)

    def _note(self, one: ListedObject, path: Path) -> None:
        if (file := facts_of(path)) is not None:
            self._records.add(CopyRecord(key=one.key, version=one.version, file=file))


def _write(path: Path, data: bytes) -> None:
    """As `path.write_bytes`, with half of its system calls."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)


def _damaged(one: ListedObject) -> str:
    return f"{one.key}: the bytes that arrived are not those of version {one.version}: stage again"


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
