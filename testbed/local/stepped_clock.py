"""A wall clock that a test sets on or back under running processes, as NTP does; all other clocks stay as they are.

libfaketime is not it: its version 0.9.10 breaks sleeps until a time of the monotonic clock, which are those of Python.
"""

import struct
import subprocess
import sysconfig
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


class SteppedClock:
    """The clock of all processes that are started with `environment`. Files have the machine's own times."""

    def __init__(self, folder: Path) -> None:
        """Make the library, and the file that tells the time, in `folder`."""
        library, self._file = folder / "stepped_clock.so", (folder / "clock").open("w+b", buffering=0)
        self.set_on(0)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()
        subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True, timeout=120)
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": self._file.name}

    def set_on(self, seconds: int) -> None:
        """Have it differ by so much from this machine's."""
        self._file.seek(0)
        self._file.write(struct.pack("=q", seconds))
