"""What a source holds: its objects as a sorted list, and the digest by which two listings are known to be equal."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hvd_elastic.staging.stage_errors import UnusableSourceError
from hvd_elastic.stores.object_requests import ListedObject

STATE_FOLDER: Final = ".hvd-elastic-stage"
"""In the staged folder: records of what was copied, and files that are not whole yet."""
SUCCESS_FILE: Final = "_SUCCESS"
REARRANGED_FILE: Final = "_REARRANGED"
_OWN_FILES: Final = frozenset({SUCCESS_FILE, REARRANGED_FILE})
_MOST_SHOWN: Final = 20
_CONTROL: Final = re.compile(r"[\0-\x1f\x7f]")
"""obstore refuses them (object_store, `PathPart::parse`)."""


@dataclass(frozen=True, kw_only=True)
class SourceManifest:
    """All objects of a source, by key. Folder markers (empty objects whose key ends in `/`) are left out."""

    objects: tuple[ListedObject, ...]

    @classmethod
    def of(cls, listed: Iterable[ListedObject]) -> "SourceManifest":
        """Raises UnusableSourceError, which names every key that cannot be a file.

        The files `_SUCCESS` and `_REARRANGED` at the top are left out: Spark and Hadoop write the first as an empty
        marker, and here it is staging's own.
        """
        objects = sorted(one for one in listed if not one.key.endswith("/") and one.key not in _OWN_FILES)
        if problems := list(_problems(objects)):
            more = [f"and {len(problems) - _MOST_SHOWN} more"] if len(problems) > _MOST_SHOWN else []
            raise UnusableSourceError("\n".join([*problems[:_MOST_SHOWN], *more]))
        return cls(objects=tuple(objects))

    @cached_property
    def size_bytes(self) -> int:
        """Of all objects together."""
        return sum(one.size_bytes for one in self.objects)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over keys, sizes and versions. Equal digests: the same data set."""
        found = hashlib.sha256()
        for one in self.objects:
            found.update(f"{one.key}\0{one.size_bytes}\0{one.version}\n".encode())
        return f"sha256:{found.hexdigest()}"


def key_problem(key: str) -> str | None:
    """Why a key cannot be the path of a file in the staged folder; None: it can."""
    parts = key.split("/")
    if "" in parts or "." in parts or ".." in parts:
        return "cannot be a file: an empty part, '.' or '..'; copy the object to another key"
    if _CONTROL.search(key):
        return "cannot be read: a control character; copy the object to another key"
    if parts[0] == STATE_FOLDER:
        return f"{STATE_FOLDER} is staging's own folder; copy the object to another key"
    if any(len(part.encode(errors="replace")) > 255 for part in parts):
        return "cannot be a file: a part of more than 255 bytes; copy the object to a shorter key"
    return None


def _problems(objects: list[ListedObject]) -> Iterator[str]:
    keys = {one.key for one in objects}
    for key in sorted(keys):
        if problem := key_problem(key):
            yield f"{key!r}: {problem}"
        elif folder := next((up for up in _folders(key.split("/")) if up in keys), None):
            yield f"{key!r}: is in {folder!r}, which is an object too: a file system has a file or a folder there"


def _folders(parts: list[str]) -> Iterator[str]:
    return ("/".join(parts[:length]) for length in range(1, len(parts)))
