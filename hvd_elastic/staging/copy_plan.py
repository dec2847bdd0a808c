"""What is left to copy, from what the source holds and what the folder has. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from hvd_elastic.staging.source_manifest import SourceManifest
from hvd_elastic.stores.object_requests import ListedObject


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a file system says of a file without reading it."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """A file that was copied and compared to its object: which object that was, and what the file looked like."""

    key: str
    version: str
    file: FileFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What to do with each object."""

    done: tuple[ListedObject, ...]
    """The file is that which was copied from this version of the object."""
    compare: tuple[ListedObject, ...]
    """A file of the right size is there, and nothing says where it comes from: read it, and copy it if it differs."""
    copy: tuple[ListedObject, ...]
    remove: tuple[str, ...]
    """Files that were copied from objects that are gone. Files that others put there stay."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.compare or self.copy or self.remove)


def plan_copy(source: SourceManifest, records: Mapping[str, CopyRecord], files: Mapping[str, FileFacts]) -> CopyPlan:
    """Plan the copy of `source`.

    Args:
        source: what shall be there.
        records: of earlier copies, by key.
        files: what is in the folder, by key; only keys of `source` and `records` count.
    """
    done: list[ListedObject] = []
    compare: list[ListedObject] = []
    copy: list[ListedObject] = []
    for one in source.objects:
        file, record = files.get(one.key), records.get(one.key)
        if file is None or file.size_bytes != one.size_bytes:
            copy.append(one)
        elif record is not None and record.version == one.version and record.file == file:
            done.append(one)
        elif record is not None and record.version != one.version and record.file == file:
            copy.append(one)  # the file is the older version: reading it would only say so
        else:
            compare.append(one)
    wanted = {one.key for one in source.objects}
    remove = tuple(sorted(key for key in records if key not in wanted and key in files))
    return CopyPlan(done=tuple(done), compare=tuple(compare), copy=tuple(copy), remove=remove)
