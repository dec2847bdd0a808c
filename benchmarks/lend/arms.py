"""Where a server's GPU comes from in each arm: what training may have meanwhile, and when a GPU is there."""

from dataclasses import dataclass, field
from typing import Final

from benchmarks.replay.trace_window import SIZE
from hvd_elastic.decide.simulate.day import NODE_UNNEEDED_SECONDS

GPUS: Final = SIZE + 1
"""Of the node. One is always a server's, and one always training's: its job has a min of one."""
MOST_SERVERS: Final = GPUS - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to have GPUs for inference."""

    name: str
    lends: bool = False
    """Whether training has what inference does not use."""
    reserve: int = 0
    """GPUs that training leaves idle beside those that inference has."""
    starts_nodes: bool = False
    """Whether each GPU beyond the first ones comes with a node that must be started."""

    def training(self, servers: int) -> int:
        """GPUs that training may have while so many servers are called for."""
        return max(1, min(SIZE, GPUS - servers - self.reserve)) if self.lends else 1


ARMS: Final = (
    Arm(name="idle GPUs"),
    Arm(name="lent", lends=True),
    Arm(name="lent with a reserve", lends=True, reserve=1),
    Arm(name="a node is started", starts_nodes=True),
)


@dataclass(slots=True, kw_only=True)
class StartedNodes:
    """Nodes of one GPU each, started when they are needed and taken away when they have long not been."""

    delay: float
    stays: float = NODE_UNNEEDED_SECONDS
    _ready: list[float] = field(default_factory=list)
    """When each is, or was."""
    _unneeded: list[float | None] = field(default_factory=list)
    """Since when each is."""

    def have(self, needed: int, now: float) -> int:
        """How many are ready, where so many are needed. Those that are needed first are ready at once."""
        is_first = not self._ready
        while len(self._ready) < needed:
            self._ready.append(now if is_first else now + self.delay)
            self._unneeded.append(None)
        for number, since in enumerate(self._unneeded):
            self._unneeded[number] = None if number < needed else now if since is None else since
        while (since := self._unneeded[-1] if self._unneeded else None) is not None and now - since >= self.stays:
            self._ready.pop()
            self._unneeded.pop()
        return sum(ready <= now for ready in self._ready)
