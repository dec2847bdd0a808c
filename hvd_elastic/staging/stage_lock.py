"""One stager of a folder at a time: jobs that share a data set, as those of a sweep do, stage it one by one."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hvd_elastic.staging.stage_errors import StageError


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a lock in `folder` (flock(2), which NFSv4 and Lustre pass on to other nodes). It ends with the process.

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
