"""Having everything that was written to one file system outlive the machine, at once: syncfs(2)."""

import ctypes
import os
from pathlib import Path


def sync_file_system(folder: Path) -> None:
    """Return when all that was written to the file system of `folder` is on its disks or servers. Raises OSError.

    One call for thousands of files, where fsync waits for each. Python has no syncfs; where libc has none either, all
    file systems are synced.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(file):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(file)
