"""A disk of a few megabytes, which a test can fill without the machine's own."""

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDisk:
    """A folder that is a file system of its own."""

    folder: Path

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 12))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def clear(self) -> None:
        """Give back what `fill` has taken."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Mount one there that everybody may write. Only containers that start later see it."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MIB}m,mode=0777", "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder=folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
