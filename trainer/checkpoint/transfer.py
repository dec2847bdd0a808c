"""Upload and download of an archive in parts, several at once, each with its SHA-256."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from hvd_elastic.stores.retry import StoppedError
from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import Manifest, choose_part_bytes, split_into_parts
from hvd_elastic.trainer.checkpoint.format.sealed_json import READS

NumberedPart = tuple[int, tuple[int, int]]
"""Number from 0, (offset, length)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredParts:
    """How an archive was stored."""

    part_bytes: int
    """Size of every part but the last."""
    sha256: tuple[str, ...]
    """SHA-256 of each part, in hexadecimal."""


class ByteSource(Protocol):
    """What is stored, one sequence of bytes."""

    size_bytes: int

    def copy(self, offset: int, target: bytearray) -> None:
        """Fill `target` with the bytes from `offset` on. Called by several threads."""


def upload(store: Store, key: str, payload: ByteSource, stop: threading.Event) -> StoredParts:
    """Store `payload` under `key`. Nothing is visible if it raises."""
    part_bytes = choose_part_bytes(payload.size_bytes, least=store.part_bytes)
    parts = split_into_parts(payload.size_bytes, part_bytes)
    digests = [""] * len(parts)
    target = store.start_upload(key, payload.size_bytes)

    def put(part: NumberedPart) -> None:
        number, (offset, length) = part
        data = bytearray(length)
        payload.copy(offset, data)
        digest = hashlib.sha256(data)
        digests[number] = digest.hexdigest()
        target.put(number + 1, offset, data, digest.digest())

    try:
        for_each_part(put, enumerate(parts), threads=store.threads, stop=stop)
        target.finish()
    except BaseException:
        target.abort()
        raise
    return StoredParts(part_bytes=part_bytes, sha256=tuple(digests))


def download(
    store: Store, manifest: Manifest, stop: threading.Event, *, first_bytes: int | None = None
) -> torch.Tensor:
    """Return the archive of `manifest`, a tensor of uint8 in one dimension.

    Args:
        store: has the archive.
        manifest: describes it.
        stop: once it is set, no further part is asked for.
        first_bytes: only the parts that hold so many first bytes are read and returned. Default None: all.

    Raises:
        CorruptError: the archive is missing, has another size than the manifest names, or a part did not match its
            SHA-256 in READS attempts.
    """
    stored = store.size_of(manifest.data)
    if stored != manifest.size_bytes:
        has = "is missing" if stored is None else f"has {stored} bytes"
        raise CorruptError(f"{manifest.data} {has}, its manifest names {manifest.size_bytes}")
    parts = split_into_parts(manifest.size_bytes, manifest.part_bytes)
    if first_bytes is not None:
        parts = tuple((offset, length) for offset, length in parts if offset < first_bytes)
    buffer = torch.empty(sum(length for _, length in parts), dtype=torch.uint8)
    view = memoryview(buffer.numpy())  # type: ignore[arg-type]

    def get(part: NumberedPart) -> None:
        number, (offset, length) = part
        target = view[offset : offset + length]
        for _ in range(READS):
            store.read_into(manifest.data, offset, target)
            if hashlib.sha256(target).hexdigest() == manifest.sha256[number]:
                return
        raise CorruptError(f"part {number + 1} of {len(manifest.sha256)} does not match its SHA-256")

    for_each_part(get, enumerate(parts), threads=store.threads, stop=stop)
    return buffer


def for_each_part(
    action: Callable[[NumberedPart], None], items: Iterable[NumberedPart], *, threads: int, stop: threading.Event
) -> None:
    """Call `action` with every item, in several threads. The first error ends all threads and is raised.

    The threads are daemons, so that a process that must end does not wait for a part that hangs.
    """
    failure: list[BaseException] = []
    lock = threading.Lock()
    iterator: Iterator[NumberedPart] = iter(items)

    def work() -> None:
        try:
            while not failure:
                with lock:
                    item = next(iterator, None)
                if item is None:
                    return
                if stop.is_set():
                    raise StoppedError("closed during a checkpoint")
                action(item)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failure.append(error)

    workers = [threading.Thread(target=work, daemon=True, name=f"checkpoint-part-{i}") for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failure:
        raise failure[0]
