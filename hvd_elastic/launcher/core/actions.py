"""What the world decides to have done, as values. The driver carries them out in this order."""

import math
from dataclasses import dataclass

from hvd_elastic.launcher.core.slot_placement import Key, Slot

Ticket = int
"""A held HTTP request; it is answered exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A new world: clear what Gloo's processes left of the last one."""

    generation: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the process `number` in `slot`."""

    number: int
    slot: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the process `number`; `at_once`: it hangs or its host is gone, do not ask it."""

    number: int
    at_once: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """Answer a held request."""

    ticket: Ticket
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell the coordinator that the hosts have changed."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A member of this world is lost: if others are forming it still, let them fail at once."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """All members of a new world are there."""

    generation: int
    before: int
    after: int
    causes: tuple[str, ...]
    pause_seconds: float | None
    """From the first notification or death to here; None for the first world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Something a person should know of."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The job has ended."""

    exit_code: int
    reason: str


Action = Form | Start | End | AnswerPlace | Notify | Break | Resized | Warn | Finish


class Agenda:
    """What is to be done, in this order, and when the world is to decide again."""

    def __init__(self) -> None:
        self.wake_at = math.inf
        self._actions: list[Action] = []

    def add(self, action: Action) -> None:
        """Have it done after all that was added before."""
        self._actions.append(action)

    def take(self) -> list[Action]:
        """What was added since the last time; the caller carries it out."""
        actions, self._actions = self._actions, []
        return actions

    def wake(self, at: float) -> None:
        """Decide again no later than then."""
        self.wake_at = min(self.wake_at, at)
