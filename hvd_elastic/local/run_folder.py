"""The temporary folder of a run, and those that killed runs have left."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from hvd_elastic.local.local_cluster import prepare_run_dir
from hvd_elastic.mpijob.contract import Exit, HvdElasticError

_PREFIX: Final = "hvd-elastic-"
_OWNER: Final = "owner"
"""A file that a run holds locked. The kernel unlocks it when the process has ended, however that was."""


class TemporaryFolderError(HvdElasticError):
    """There is no place for the files of a run."""

    exit_code = Exit.BAD_INPUT


@contextmanager
def run_folder() -> Iterator[Path]:
    """Make the run folder of one run. On the way out it is removed; what dead runs of this user have left, on the way
    in.

    Raises TemporaryFolderError.
    """
    with ExitStack() as made:
        try:
            folder = _make_folder(made)
        except OSError as error:
            raise TemporaryFolderError(
                f"no temporary folder can be written ({error.strerror}): make room, or set TMPDIR"
            ) from error
        yield folder


def _make_folder(made: ExitStack) -> Path:
    parent = Path(tempfile.gettempdir())
    if os.statvfs(parent).f_flag & os.ST_NOEXEC:
        raise TemporaryFolderError(
            f"{parent} is mounted noexec, and a job's programs are written there: set TMPDIR to another"
        )
    _remove_leftovers(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    made.callback(shutil.rmtree, folder, ignore_errors=True)
    # Under its own name it is locked already: another run that starts now must not take this one for dead.
    owner = made.enter_context((folder / f".{_OWNER}").open("wb"))
    fcntl.flock(owner, fcntl.LOCK_EX)
    Path(owner.name).rename(folder / _OWNER)
    prepare_run_dir(folder)
    return folder


def _remove_leftovers(parent: Path) -> None:
    for owner in parent.glob(f"{_PREFIX}*/{_OWNER}"):
        with suppress(OSError):
            if owner.parent.lstat().st_uid != os.getuid() or not owner.is_file():
                continue
            with owner.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent, ignore_errors=True)
