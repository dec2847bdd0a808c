"""What the world decides, as values. The driver carries the actions out in the order in which they were added."""

import math
from dataclasses import dataclass

from hvd_elastic.launcher.core.resize_causes import ResizeCause
from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey

Ticket = int
"""Names an HTTP request that is held open. Each is answered exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormWorld:
    """Begin a new world: clear what the last one's processes left in Gloo's key-value store."""

    generation: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProcess:
    """Start the process `number` in `slot`."""

    number: int
    slot: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class EndProcess:
    """End the process `number`."""

    number: int
    at_once: bool
    """Kill it without asking: it hangs, or its host is gone."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """Answer a held request."""

    ticket: Ticket
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyCoordinator:
    """Tell rank 0 of the running world that the hosts have changed."""

    key: SlotKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PingProcess:
    """Ask the process `number` in the place `key` whether it lives. The outcome is due within some seconds."""

    number: int
    key: SlotKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FailFormation:
    """A member of this world is lost: members that are still inside `hvd.init()` must fail at once."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResized:
    """All members of a new world have arrived, and it runs."""

    generation: int
    before: int
    after: int
    """World sizes, in processes."""
    causes: tuple[ResizeCause, ...]
    pause_seconds: float | None
    """From the first notification or death to here; None for the first world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWarning:
    """Log something that a person should know."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishJob:
    """The job has ended."""

    exit_code: int
    reason: str


Action = (
    FormWorld
    | StartProcess
    | EndProcess
    | AnswerRequest
    | NotifyCoordinator
    | PingProcess
    | FailFormation
    | WorldResized
    | LogWarning
    | FinishJob
)


class ActionQueue:
    """The actions that wait to be carried out, and the time at which the world must decide again."""

    def __init__(self) -> None:
        self.wake_at = math.inf
        self.finished = False
        """Whether the job was told to end."""
        self._actions: list[Action] = []

    def add(self, action: Action) -> None:
        self._actions.append(action)

    def finish(self, exit_code: int, reason: str) -> None:
        """Have the job end; only the first call counts."""
        if not self.finished:
            self.finished = True
            self.add(FinishJob(exit_code=int(exit_code), reason=reason))

    def drain(self) -> list[Action]:
        """Remove and return all actions; the caller carries them out."""
        actions, self._actions = self._actions, []
        return actions

    def wake_by(self, at: float) -> None:
        """Have the world decide again no later than `at`."""
        self.wake_at = min(self.wake_at, at)
