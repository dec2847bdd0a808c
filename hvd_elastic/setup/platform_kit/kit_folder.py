"""The folder of a kit: written whole, and never over what somebody else put there."""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.manifests.writers import kustomize
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import Problem
from hvd_elastic.setup.platform_kit.kit_files import MARK

_SHOWN: Final = 10
"""Files of somebody else that an error names. The folder may be a home directory."""


def write_kit(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Make `folder` hold exactly `files` (relative path to content), and return their paths.

    What an earlier kit had and this one has not is removed. The same files again change nothing.

    Raises:
        InvalidInputError: the folder holds files that no kit wrote. Nothing was changed.
        CannotWriteError: the file system refused.
    """
    try:
        foreign = list(islice(_foreign(folder), _SHOWN + 1))
        if foreign:
            raise InvalidInputError([_problem(folder, foreign)])
        paths = kustomize.write(files, folder)
        for path in set(_all_files(folder)) - set(paths):
            path.unlink()
    except OSError as error:
        raise kustomize.CannotWriteError(error) from error
    return paths


def _problem(folder: Path, foreign: list[str]) -> Problem:
    more = ", and others" if len(foreign) > _SHOWN else ""
    what = f"holds what the kit did not write: {', '.join(foreign[:_SHOWN])}{more}"
    way_out = "name an empty or a new folder, and keep overlays beside it"
    return Problem(path="DIR", value=str(folder), what=what, way_out=way_out)


def _foreign(folder: Path) -> Iterator[str]:
    """Relative paths of files that no kit wrote."""
    for path in _all_files(folder):
        if path.is_symlink() or not path.is_file() or not _is_ours(path):
            yield str(path.relative_to(folder))


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()


def _all_files(folder: Path) -> Iterator[Path]:
    """All that is in the folder but directories, in an order of its own. A link is not followed."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(20, "is a file", str(folder))
    for root, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        yield from (Path(root) / name for name in sorted(names))
        yield from (path for name in folders if (path := Path(root) / name).is_symlink())


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # the folder is made below
        raise error
