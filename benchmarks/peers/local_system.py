"""What every system is to the replay: places that training may use, and a folder of events."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

EVENTS: Final = "events"
"""In the folder of a run; the files that the training processes write."""


class NeverTrainedError(Exception):
    """The system did not come to train on all hosts."""


class Places(Protocol):
    """What training may use of this machine, and what it does use."""

    @property
    def held(self) -> int:
        """How many hosts are there, those that are ending included."""

    def want(self, count: int) -> None:
        """Set how many hosts training may use."""

    def kill(self) -> None:
        """Kill all processes of the last host at once. It is started again, as long as it is wanted."""

    def tend(self, now: float) -> None:
        """Make it so, at `now` of the monotonic clock. Called many times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSystem:
    """Something that trains elastically on this machine."""

    name: str
    start: Callable[[Path, int], AbstractContextManager[Places]]
    """Takes a folder, and the number of hosts, all of which it wants first.

    Raises CalledProcessError and OSError if what it needs cannot be installed, and NeverTrainedError.
    """
