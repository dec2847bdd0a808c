"""A process as the world sees it, and what bounds the world.

A process goes through these phases::

    STARTED ──(asks the barrier)──► WAITING ─┐                      a newcomer, warm, not yet part of a world
       └─(the first world)──────────────────►├─► ASSIGNED ─(barrier)─► ARRIVED ─(all are)─► RUNNING
                                             │        ▲                   │ a member died      │ error or notification
    ASKING ◄──(GET rank_and_size)────────────┼────────┴───────────────────┴───────────────────┘
       └──(all members ask or are gone)──────┘        └──(no place in the new world)──► LEAVING
"""

from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.launcher.core.actions import Ticket
from hvd_elastic.launcher.core.slot_placement import Key, Slot


class ProcessPhase(StrEnum):
    """Where a process is on its way; see the picture above."""

    STARTED = "started"
    WAITING = "waiting"
    ASSIGNED = "assigned"
    ARRIVED = "arrived"
    RUNNING = "running"
    ASKING = "asking"
    LEAVING = "leaving"


@dataclass(slots=True, kw_only=True)
class Process:
    """One process that was started and has not ended yet."""

    number: int
    slot: Slot
    """The place it was last told, in its environment or by an answer."""
    told: int
    """The generation of that place; -1: a guess made before the world was formed."""
    phase: ProcessPhase
    newborn: bool = True
    """It has only its environment to go by: it never asked for a place."""
    joins: bool = False
    """It asked at the barrier; the stock worker never does."""
    registered: bool = False
    """Its notification service is known: it has entered `elastic.run`."""
    holds_state: bool = False
    ticket: Ticket | None = None
    ticket_is_join: bool = False
    since: float = 0.0
    """When it came into its phase."""
    ticket_at: float = 0.0
    released: bool = False
    """It was released while it had no request open; the next one is answered GO."""

    @property
    def key(self) -> Key:
        """Its place."""
        return self.slot.key

    @property
    def alias(self) -> str:
        """Its host."""
        return self.slot.host.alias

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.slot.host.label}[{self.slot.local_rank}]"

    def enter(self, phase: ProcessPhase, now: float) -> None:
        """From now on it is in this phase, if it was not before."""
        if self.phase is not phase:
            self.phase, self.since = phase, now


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldLimits:
    """What bounds the world. Seconds."""

    start: int
    minimum: int
    maximum: int | None
    elastic_timeout: float
    reset_limit: int | None
    restart_errors: bool
    settle: float
    """At the start: how long the list of hosts must have been still before fewer than `maximum` are enough."""
    hang_timeout: float
    removed_patience: float
    start_timeout: float
    """How long those who hold state wait at the barrier for a newcomer."""
    first_start_timeout: float
    """The same for a world in which nobody holds state: slow imports hurt nobody there."""
    gather: float = 2.0
    """How long a newcomer waits for others that were started, so that they join in one resize: it costs the newcomer a
    moment and spares everybody a pause."""
    join_hold: float = 25.0
    notify_again: float = 0.5
    notify_retry: float = 0.2
    leave_patience: float = 15.0
