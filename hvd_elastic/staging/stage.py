"""The staging of one data set, from the listing to the markers. Doing it again changes nothing."""

import errno
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hvd_elastic.mpijob.contract import ENV_DATA
from hvd_elastic.staging import stage_marker
from hvd_elastic.staging.copier import RANGE_BYTES, Copier
from hvd_elastic.staging.copy_plan import CopyPlan, FileFacts, plan_copy
from hvd_elastic.staging.copy_records import CopyRecords, facts_of
from hvd_elastic.staging.progress_line import StageProgress
from hvd_elastic.staging.source_manifest import STATE_FOLDER, SourceManifest
from hvd_elastic.staging.stage_errors import StageError
from hvd_elastic.staging.stage_marker import RearrangedMarker, SuccessMarker
from hvd_elastic.system.file_system_sync import sync_file_system

if TYPE_CHECKING:
    from hvd_elastic.stores.data_set.object_source import ObjectSource

_RECORDS_FILE: Final = "records.jsonl"
_INCOMING_FOLDER: Final = "incoming"
THREADS: Final = 16
_LOOKS: Final = 64
"""Files that a thread looks at for each turn in the pool, which takes longer than a look at a local disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What a staging has done."""

    marker: SuccessMarker
    copied: int = 0
    """Objects that were read from the source."""
    kept: int
    """Objects whose files were there."""
    removed: int = 0
    rearranged: bool = False
    """Whether the command ran. False also if there is none, or it has run before."""


def stage(
    source_url: str,
    folder: Path,
    *,
    endpoint: str | None = None,
    threads: int = THREADS,
    range_bytes: int = RANGE_BYTES,
    rearrange: Sequence[str] = (),
    report: Callable[[StageProgress], None] = lambda _: None,
) -> Staged:
    """Copy everything below `source_url` into `folder`, then run `rearrange` on it once.

    Args:
        source_url: `s3://bucket/prefix`, `gs://bucket/prefix`, a container of Azure as in a checkpoint's URL, or
            `https://host/folder/list.tsv` (`url_list.py`).
        folder: is made if it does not exist. A second process that stages into it waits for the first one's end.
        endpoint: URL of another service than the cloud's own.
        threads: ranges and small objects that are read at once.
        range_bytes: larger objects are read in ranges of this size.
        rearrange: a command that runs in `folder` after the copy. It must bear being run again after it was killed.
        report: is told how far it is, one call at a time.

    Raises StageError (UnusableSourceError names all keys that cannot be files), StoreError, CheckpointUrlError and
    OSError. What was copied stays.
    """
    from hvd_elastic.stores.data_set.object_source import ObjectSource

    source = ObjectSource(source_url, endpoint=endpoint, threads=threads)
    with closing(source), _lock_of(folder / STATE_FOLDER):
        manifest = SourceManifest.of(source.objects())
        if not manifest.objects:
            raise StageError(f"{source.url}: there is no object below this prefix: correct the URL")
        if rearrange and (known := _finished(folder, source.url, manifest, rearrange)):
            return Staged(marker=known, kept=known.objects)
        done = _copy(source, manifest, folder, threads=threads, range_bytes=range_bytes, report=report)
        return replace(done, rearranged=bool(rearrange) and _rearrange(folder, done.marker, rearrange))


@contextmanager
def _lock_of(folder: Path) -> Iterator[None]:
    """Hold a lock in `folder` (flock(2), which NFSv4 and Lustre pass on to other nodes). It ends with the process.

    Jobs that share a data set, as those of a sweep do, stage it one by one.

    Raises StageError on a file system without locks, such as Lustre without the mount option `flock`; OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}:
                way_out = "mount it with locks (Lustre: the option flock)"
                raise StageError(f"{folder}: this file system has no locks: {way_out}") from error
            raise
        yield


def _finished(folder: Path, url: str, manifest: SourceManifest, command: Sequence[str]) -> SuccessMarker | None:
    """The marker of a data set that was rearranged. Its files are no longer the source's: none is compared."""
    success, rearranged = stage_marker.read_success(folder), stage_marker.read_rearranged(folder)
    same = success is not None and success.digest == manifest.digest and success.source == url
    ran = rearranged is not None and rearranged.digest == manifest.digest and [*rearranged.command] == [*command]
    return success if same and ran else None


def _copy(
    source: "ObjectSource",
    manifest: SourceManifest,
    folder: Path,
    *,
    threads: int,
    range_bytes: int,
    report: Callable[[StageProgress], None],
) -> Staged:
    records = CopyRecords(folder / STATE_FOLDER / _RECORDS_FILE)
    known = records.load()
    plan = plan_copy(manifest, known, _files(folder, {*known, *(one.key for one in manifest.objects)}, threads))
    before = stage_marker.read_success(folder)
    if plan.is_empty and before and (before.digest, before.source) == (manifest.digest, source.url):
        return Staged(marker=before, kept=len(plan.done))
    folder.mkdir(parents=True, exist_ok=True)
    stage_marker.clear(folder)
    for key in plan.remove:
        (folder / key).unlink(missing_ok=True)
    records.rewrite({one.key: known[one.key] for one in plan.done})
    counter = _Counter(manifest, plan, report)
    copier = Copier(
        source,
        folder,
        folder / STATE_FOLDER / _INCOMING_FOLDER,
        records,
        threads=threads,
        range_bytes=range_bytes,
        copied=counter.add,
    )
    counter.add(0, 0)  # what an earlier attempt has left
    try:
        copied = copier.copy(plan)
    finally:
        records.close()
    marker = SuccessMarker(
        source=source.url,
        objects=len(manifest.objects),
        size_bytes=manifest.size_bytes,
        digest=manifest.digest,
        unverified=copier.unverified,
    )
    sync_file_system(folder)
    stage_marker.write(folder, marker)
    return Staged(marker=marker, copied=copied, kept=len(manifest.objects) - copied, removed=len(plan.remove))


def _files(folder: Path, keys: Iterable[str], threads: int) -> dict[str, FileFacts]:
    """What is there. On a network file system each look is a request, so many go out at once."""
    is_new = all(one.name == STATE_FOLDER for one in folder.iterdir())
    names = [] if is_new else list(keys)

    def look(start: int) -> Sequence[tuple[str, FileFacts]]:
        return [(key, facts) for key in names[start : start + _LOOKS] if (facts := facts_of(folder / key))]

    with ThreadPoolExecutor(threads) as pool:
        return dict(chain.from_iterable(pool.map(look, range(0, len(names), _LOOKS))))


def _rearrange(folder: Path, success: SuccessMarker, command: Sequence[str]) -> bool:
    ran = stage_marker.read_rearranged(folder)
    wanted = RearrangedMarker(digest=success.digest, command=list(command))
    if ran == wanted:
        return False
    try:
        subprocess.run(command, cwd=folder, env={**os.environ, ENV_DATA: str(folder)}, check=True)
    except subprocess.CalledProcessError as error:
        raise StageError(f"rearrange: {' '.join(command)} ended with code {error.returncode}") from error
    except OSError as error:
        raise StageError(f"rearrange: {' '.join(command)}: {error}") from error
    stage_marker.write(folder, wanted)
    return True


class _Counter:
    """Adds up what threads copy."""

    def __init__(self, manifest: SourceManifest, plan: CopyPlan, report: Callable[[StageProgress], None]) -> None:
        self._manifest, self._report = manifest, report
        self._objects = len(plan.done)
        self._size_bytes = sum(one.size_bytes for one in plan.done)
        self._lock = threading.Lock()

    def add(self, objects: int, size_bytes: int) -> None:
        with self._lock:
            self._objects += objects
            self._size_bytes += size_bytes
            self._report(
                StageProgress(
                    objects=self._objects,
                    of_objects=len(self._manifest.objects),
                    size_bytes=self._size_bytes,
                    of_bytes=self._manifest.size_bytes,
                )
            )
