"""The limits within which a world is formed and kept."""

from dataclasses import dataclass

from hvd_elastic.policy.allowed_sizes import largest_size


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldLimits:
    """Sizes are in processes, times in seconds."""

    start: int
    """Slots needed for the job's first world."""
    minimum: int
    maximum: int | None
    sizes: tuple[int, ...] = ()
    """The only sizes that a world may have; empty: any."""
    elastic_timeout: float
    """How long there may be fewer than `minimum` slots before the job ends; infinite: as long as it takes."""
    reset_limit: int | None
    restart_errors: bool
    settle: float
    """At the start: how long the list of hosts must stay unchanged before fewer than `maximum` slots are enough."""
    hang_timeout: float
    """How long a member that lives, but neither asks for a place nor ends, may keep the others waiting. A script may
    compute for minutes between two commits."""
    removed_patience: float
    """The same for a member whose host has left the list."""
    start_timeout: float
    """How long members that hold the state wait at the barrier for a newcomer."""
    first_start_timeout: float
    """The same for a world in which no process holds the state, where slow imports do no harm."""
    silence: float = 10.0
    """How long a member that does not answer, a stopped process or one on a lost host, may do so. At most
    `hang_timeout`."""
    entry_patience: float = 60.0
    """How long a member that has not entered `elastic.run`, and so cannot be pinged, may do so. At most
    `hang_timeout`."""
    ping_first: float = 0.1
    """From the moment in which a world stands still to the first pings, of those that have not asked for a place. Most
    resizes are over before."""
    ping_again: float = 1.0
    """Between two pings of the same member."""
    pings_at_once: int = 256
    """How many pings may be under way, so that a second of standing still costs the same in a world of thousands: each
    takes the launcher half a millisecond of CPU. Up to this size all members are pinged in each round."""
    gather: float = 2.0
    """How long a newcomer waits for others that were started, so that all join in one resize. The wait costs the
    newcomer a moment and spares all members a pause."""
    join_hold: float = 25.0
    """How long, at most, a request at the barrier is held before the worker has to ask again."""
    notify_again: float = 0.5
    """Between two notifications of the same coordinator."""
    notify_retry: float = 0.2
    """After a notification that could not be delivered."""
    loss_patience: float = 5.0
    """Once no process holds the state: how long to wait for the hosts of the processes that died to leave the list. A
    pod that was deleted by force, or a node that was lost, is known to be gone a moment after its processes."""
    return_patience: float = 30.0
    """After the loss of every worker: a pod that is not back after this time was taken away."""
    most_failed_starts: int = 5
    """Worlds in a row that may fail before any process holds the state, on pods that stay: a script that crashes in its
    first step would otherwise be begun again for ever."""
    leave_patience: float = 15.0
    """How long a process that was told to leave may take before it is killed."""

    def size(self, available: int) -> int:
        """Of the largest world in so many slots. Below the smallest that is allowed: as many as there are."""
        most = available if self.maximum is None else min(available, self.maximum)
        return largest_size(self.sizes, most)

    def handover_size(self, available: int, handover: int) -> int:
        """The same, where `handover` of these slots are there only to hand the state over.

        These are part of an allowed size if it has room for a newcomer. Else they come on top, for one world: to lose
        the state would be worse.
        """
        size = self.size(available)
        return size if self.sizes and size > handover else self.size(available - handover) + handover
