"""What a launcher knows of its job's world: the one value that all its decisions read and change."""

from dataclasses import dataclass

from hvd_elastic.launcher.core.actions import ActionQueue
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.hosts.host_pool import HostPool
from hvd_elastic.launcher.core.pending_resize import PendingResize
from hvd_elastic.launcher.core.processes.process_table import ProcessTable
from hvd_elastic.launcher.core.signs_of_life import SignsOfLife
from hvd_elastic.launcher.core.world_limits import WorldLimits


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
