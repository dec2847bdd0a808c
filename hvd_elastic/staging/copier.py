"""Copies objects into files, many at once: large objects in ranges, under a hidden name until the file is whole."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from hvd_elastic.staging.copy_plan import CopyPlan, CopyRecord
from hvd_elastic.staging.copy_records import CopyRecords, facts_of
from hvd_elastic.staging.partial_file import PartialFile, partial_names, write_all
from hvd_elastic.staging.stage_errors import DigestError
from hvd_elastic.stores.object_requests import ListedObject

if TYPE_CHECKING:
    from hvd_elastic.stores.data_set.object_source import ObjectSource

RANGE_BYTES: Final = 16 << 20
"""Read at once by one thread, and held in memory. Larger objects are read by several threads."""
_Task = Callable[[], object]


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
        self._folders = set[str]()
        self.unverified = 0
        """Objects of whose bytes the store says nothing."""

    def copy(self, plan: CopyPlan) -> int:
        """Copy what is to be copied, and return how many objects that were.

        Raises the first StageError or OSError, after all threads have ended.
        """
        copy = [*plan.copy]
        _run_all((partial(self._compare, one, copy.append) for one in plan.compare), self._threads)
        self._incoming.mkdir(parents=True, exist_ok=True)
        kept = {name for one in copy for name in partial_names(one)}
        for left in self._incoming.iterdir():  # of a copier that was killed
            if left.name not in kept:
                left.unlink()
        try:
            _run_all(self._tasks(copy), self._threads)
        finally:
            for arriving in self._open:
                arriving.close()
        return len(copy)

    def _compare(self, one: ListedObject, copy: Callable[[ListedObject], None]) -> None:
        path = self._folder / one.key
        with path.open("rb") as file:
            is_known = self._verify(one, file)
        if not is_known:
            copy(one)
            return
        self._note(one, path)
        self._copied(1, one.size_bytes)

    def _tasks(self, objects: Iterable[ListedObject]) -> Iterator[_Task]:
        for one in objects:
            if one.size_bytes <= self._range_bytes:
                yield partial(self._copy_small, one)
                continue
            digest = self._source.digest_of(one)  # one object at a time, while other threads read
            arriving = PartialFile(self._incoming, one, range_bytes=self._range_bytes, digest=digest)
            self._open.add(arriving)
            for span in arriving.ranges:
                yield partial(self._copy_range, arriving, span)

    def _copy_small(self, one: ListedObject) -> None:
        data = b"".join(self._source.pieces(one, 0, one.size_bytes))
        is_whole = self._verify(one, BytesIO(data))
        if is_whole is False:
            raise DigestError(_damaged(one))
        if is_whole is None:
            self._count_unverified()
        path = self._incoming / partial_names(one)[0]
        # A file object asks the file system twice more, which tells where objects are small and many.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            write_all(file, data, 0)
        finally:
            os.close(file)
        self._publish(one, path)
        self._copied(1, one.size_bytes)

    def _copy_range(self, arriving: PartialFile, span: tuple[int, int]) -> None:
        length = span[1] - span[0]
        is_last = arriving.arrive(span, self._source.pieces(arriving.object, span[0], length))
        if is_last:
            self._finish_large(arriving)
        self._copied(int(is_last), length)

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
        target, folder = self._folder / one.key, one.key.rpartition("/")[0]
        if folder not in self._folders:  # on a network file system each look is a request
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        path.rename(target)
        self._note(one, target)

    def _note(self, one: ListedObject, path: Path) -> None:
        if (file := facts_of(path)) is not None:
            self._records.add(CopyRecord(key=one.key, version=one.version, file=file))


def _damaged(one: ListedObject) -> str:
    return f"{one.key}: the bytes that arrived are not those of version {one.version}: stage again"


def _run_all(tasks: Iterable[_Task], threads: int) -> None:
    """Run all tasks, `threads` of them at once. The first error keeps the others from beginning, and is raised."""
    lock, todo, failed = threading.Lock(), iter(tasks), threading.Event()

    def work() -> None:
        try:
            while not failed.is_set():
                with lock:
                    task = next(todo, None)
                if task is None:
                    return
                task()
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
