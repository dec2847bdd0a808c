"""A process as the world sees it.

A process goes through these phases::

    STARTED ──(asks the barrier)──► WAITING ─┐                      a newcomer, warm, not yet part of a world
       └─(the first world)──────────────────►├─► ASSIGNED ─(barrier)─► ARRIVED ─(all are)─► RUNNING
                                             │        ▲                   │ a member died      │ error or notification
    ASKING ◄──(GET rank_and_size)────────────┼────────┴───────────────────┴───────────────────┘
       └──(all members ask or are gone)──────┘        └──(no place in the new world)──► LEAVING
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.launcher.core.actions import Ticket
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey

LATE: Final = "did not reach hvd.init() in time"
"""The reason for which a process that waits or starts is written off."""


class ProcessPhase(StrEnum):
    """The phases of the diagram above."""

    STARTED = "started"
    WAITING = "waiting"
    ASSIGNED = "assigned"
    ARRIVED = "arrived"
    RUNNING = "running"
    ASKING = "asking"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When a process is written off, and why."""

    at: float
    reason: str
    is_failure: bool = True
    """Whether the process itself has failed then. A silent one was stopped from outside, or has lost its host."""


@dataclass(slots=True, kw_only=True)
class Process:
    """One process that was started and has not ended yet."""

    number: int
    slot: Slot
    """The place that the process knows of, from its environment or from an answer."""
    slot_generation: int
    """The generation of that place; -1: a guess made before the world was formed."""
    phase: ProcessPhase
    never_asked: bool = True
    """It has not asked for a place yet and knows only the one in its environment."""
    uses_barrier: bool = False
    """It has asked at the barrier; stock workers never do."""
    registered: bool = False
    """Its notification service is known: it has entered `elastic.run`."""
    holds_state: bool = False
    ticket: Ticket | None = None
    """Its open request."""
    ticket_is_join: bool = False
    ticket_since: float = 0.0
    init_ticket: Ticket | None = None
    """Its open request from inside `hvd.init()`, where a stock worker waits for the others."""
    phase_since: float = 0.0
    go_is_due: bool = False
    """It was released while it had no open request: its next request at the barrier is answered GO."""

    @property
    def key(self) -> SlotKey:
        """Its host and its local rank."""
        return self.slot.key

    @property
    def alias(self) -> str:
        return self.slot.host.alias

    @property
    def name(self) -> str:
        """Its name in messages: the host's label and the local rank."""
        return f"{self.slot.host.label}[{self.slot.local_rank}]"

    @property
    def is_cold(self) -> bool:
        """Whether it has a place in a world but has never come to one: members that ask do not wait for it."""
        return self.never_asked and (self.phase is ProcessPhase.ASSIGNED or self.init_ticket is not None)

    def enter(self, phase: ProcessPhase, now: float) -> None:
        """Go into a phase; does nothing if the process is in it already."""
        if self.phase is not phase:
            self.phase, self.phase_since = phase, now
