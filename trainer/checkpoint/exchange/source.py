"""Brings a file of another format onto this machine, if it is not there: from a bucket it is downloaded."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hvd_elastic.stores.location import SCHEMES, Location
from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.exchange import INDEX
from hvd_elastic.trainer.checkpoint.exchange.file_formats import is_exchanged
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import split_into_parts
from hvd_elastic.trainer.checkpoint.transfer import NumberedPart, for_each_part


@contextmanager
def opened(place: str) -> Iterator[Path | None]:
    """Yield the path of a file, or of a folder of torch.distributed.checkpoint; None: neither is there.

    Args:
        place: a path, `file:///path` or the URL of a file in a bucket. What is downloaded goes when the context ends.

    Raises:
        CheckpointUrlError: the URL cannot be used.
        StoreError: the store did not answer, or refused.
    """
    scheme = urlsplit(place).scheme
    if scheme not in SCHEMES:
        yield Path(place)
        return
    location = Location.parse(place)
    if scheme == "file":
        path = Path(unquote(urlsplit(place).path))
        yield path if is_exchanged(path) else None
        return
    above, _, name = location.path.rpartition("/")
    store = replace(location, path=above).open()
    try:
        with tempfile.TemporaryDirectory(prefix="hvd-elastic-") as folder:
            yield _downloaded(store, name, Path(folder))
    finally:
        store.close()


def _downloaded(store: Store, name: str, folder: Path) -> Path | None:
    if store.size_of(name) is not None:
        _download(store, name, folder / name)
        return folder / name
    if store.size_of(f"{name}/{INDEX}") is None:
        return None
    (folder / name).mkdir()
    for key in store.keys(name):
        if key.count("/") == 1 and not key.endswith("/"):
            _download(store, key, folder / key)
    return folder / name


def _download(store: Store, key: str, path: Path) -> None:
    size = store.size_of(key)
    if size is None:
        raise CorruptError(f"{key} was deleted while it was read")
    with path.open("wb") as file:
        file.truncate(size)

    def get(part: NumberedPart) -> None:
        _, (offset, length) = part
        content = bytearray(length)
        store.read_into(key, offset, memoryview(content))
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    parts = split_into_parts(size, store.part_bytes)
    for_each_part(get, enumerate(parts), threads=store.threads, stop=threading.Event())
