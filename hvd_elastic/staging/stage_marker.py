"""The markers of a staged folder: `_SUCCESS` says what was copied, `_REARRANGED` which command has run on it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from hvd_elastic.staging.source_manifest import REARRANGED_FILE, SUCCESS_FILE
from hvd_elastic.system.atomic_file import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessMarker:
    """A data set that is whole."""

    source: str
    objects: int
    size_bytes: int
    digest: str
    """Of the source's manifest."""
    unverified: int
    """Of those that the last run read: objects of whose bytes the store says nothing. Their size and version were
    checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RearrangedMarker:
    """A command that has ended well on a data set."""

    digest: str
    command: Sequence[str]


_Marker = TypeVar("_Marker", SuccessMarker, RearrangedMarker)


def read_success(folder: Path) -> SuccessMarker | None:
    """The marker. None: there is none, or it is not one of staging's (Hadoop's is empty)."""
    return _read(folder / SUCCESS_FILE, SuccessMarker)


def read_rearranged(folder: Path) -> RearrangedMarker | None:
    """The marker of the command that ran last. None: none has run to its end."""
    return _read(folder / REARRANGED_FILE, RearrangedMarker)


def write(folder: Path, marker: SuccessMarker | RearrangedMarker) -> None:
    """Say that the data set is whole, or that the command has ended well. Raises OSError."""
    name = SUCCESS_FILE if isinstance(marker, SuccessMarker) else REARRANGED_FILE
    replace_file(folder / name, json.dumps(asdict(marker), indent=1) + "\n")


def clear(folder: Path) -> None:
    """Remove both markers, before anything changes. Raises OSError."""
    for name in (REARRANGED_FILE, SUCCESS_FILE):
        (folder / name).unlink(missing_ok=True)


def _read(path: Path, kind: type[_Marker]) -> _Marker | None:
    try:
        return kind(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None
