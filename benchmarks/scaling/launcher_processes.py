"""The processes of a launcher: their CPU and memory."""

import contextlib

import psutil

from benchmarks.scaling.scale_figures import MIB


class LauncherProcesses:
    """A launcher and the Pythons that it starts on its own side."""

    def __init__(self, pid: int) -> None:
        self._launcher = psutil.Process(pid)
        self._spent: dict[int, float] = {}

    def cpu(self) -> float:
        """CPU seconds so far. One that has ended counts with what it had when it was last seen."""
        for process in self._alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._spent[process.pid] = times.user + times.system
        return sum(self._spent.values())

    def mib(self) -> float:
        """Resident memory; what processes share is divided among them."""
        return sum(map(_shared_mib, self._alive()))

    def _alive(self) -> list[psutil.Process]:
        return [self._launcher, *filter(_is_python, self._launcher.children(recursive=True))]


def _shared_mib(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(process.memory_full_info().pss / MIB)
    return 0.0


def _is_python(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.name().startswith("python"))
    return False
