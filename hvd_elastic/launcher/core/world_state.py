"""What a launcher knows of its job's world: the one value that all its decisions read and change."""

from collections.abc import Sequence
from dataclasses import dataclass

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.actions import ActionQueue, WorldResized
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.hosts.host_pool import HostPool
from hvd_elastic.launcher.core.processes.process_table import ProcessTable
from hvd_elastic.launcher.core.resize_causes import ResizeCause
from hvd_elastic.launcher.core.signs_of_life import SignsOfLife
from hvd_elastic.launcher.core.slot_placement import Slot, place
from hvd_elastic.launcher.core.world_limits import WorldLimits


class PendingResize:
    """Collects what has happened since the current world began to run."""

    def __init__(self) -> None:
        self._causes: dict[ResizeCause, None] = {}
        self._size_before = 0
        self._pause_began: float | None = None

    @property
    def causes(self) -> tuple[ResizeCause, ...]:
        """Each cause once, in the order of their first appearance."""
        return tuple(self._causes)

    def add(self, *causes: ResizeCause) -> None:
        """Add causes of the next world."""
        self._causes.update(dict.fromkeys(causes))

    def begin_pause(self, now: float) -> None:
        """A member was notified, has died, or asks for a place. The first of these begins the pause."""
        if self._pause_began is None:
            self._pause_began = now

    def end_pause(self, generation: int, size: int, now: float) -> WorldResized:
        """The next world runs. What comes from here on counts towards the one after it."""
        resized = WorldResized(
            generation=generation,
            before=self._size_before,
            after=size,
            causes=self.causes,
            pause_seconds=None if self._pause_began is None else now - self._pause_began,
        )
        self._causes, self._size_before, self._pause_began = {}, size, None
        return resized


@dataclass(slots=True, kw_only=True)
class WorldState:
    """Hosts, processes and the world that they form or are about to form."""

    limits: WorldLimits
    actions: ActionQueue
    """What is to be done, as it was decided."""
    processes: ProcessTable
    hosts: HostPool
    resize: PendingResize
    """Why the next world differs, and since when training stands still for it."""
    signs: SignsOfLife
    forming: bool = False
    """Whether the current world waits for members."""
    resets: int = 0
    """Worlds after the first one."""
    has_begun: bool = False
    """Whether an earlier launcher of this job has had a world: `minimum` slots are enough from the beginning."""
    succeeded: bool = False
    """Whether a member has ended with success: no further world is formed."""

    @classmethod
    def empty(cls, limits: WorldLimits, blacklist: Blacklist, holds: Blacklist) -> "WorldState":
        """Without hosts and processes."""
        actions, processes = ActionQueue(), ProcessTable()
        return cls(
            limits=limits,
            actions=actions,
            processes=processes,
            hosts=HostPool(processes, blacklist, holds, return_patience=limits.return_patience),
            resize=PendingResize(),
            signs=SignsOfLife(limits, actions),
        )

    def place(self, hosts: Sequence[Host]) -> tuple[Slot, ...]:
        """The largest world that is allowed on these hosts, the first ones first."""
        return place(hosts, self.limits.size(sum(host.slots for host in hosts)))
