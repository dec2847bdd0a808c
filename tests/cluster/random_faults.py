"""What happens to a job, and when: a pure function of a seed."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What a cluster does to a job, and what breaks by itself."""

    LOAD = "inference asks for other GPUs"
    KILL = "a training process is killed"
    STOP = "a training process is stopped, and never goes on"
    DELETE = "a worker is told to end"
    FORCE = "a worker is deleted by force"
    SSHD = "a worker's sshd is killed"
    SIDECAR = "the discovery sidecar is told to end"
    API_SERVER = "the API server restarts"
    LAUNCHER_DRAINED = "the launcher is told to end"
    LAUNCHER_LOST = "the launcher is deleted by force"


ACTIONS: Final = 15
MOST_SECONDS: Final = 6.0
"""Between two actions: a resize takes one to ten, so most overlap."""
_WEIGHTS: Final = {Fault.LOAD: 5, Fault.API_SERVER: 0.7, Fault.LAUNCHER_DRAINED: 0.7, Fault.LAUNCHER_LOST: 0.7}
"""How often, where not once: inference comes and goes all day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One fault."""

    delay_seconds: float
    """After the action before it, whatever that has brought about."""
    fault: Fault
    choice: int
    """Selects what it strikes."""

    def __str__(self) -> str:
        return f"+{self.delay_seconds:.1f} s: {self.fault}"


def schedule(seed: int, actions: int = ACTIONS) -> tuple[Action, ...]:
    """Return the actions of a seed. A launcher is lost or drained twice at most, or its restarts could be over."""
    chance = random.Random(seed)
    found: list[Action] = []
    launchers = {Fault.LAUNCHER_DRAINED, Fault.LAUNCHER_LOST}
    while len(found) < actions:
        fault = chance.choices(list(Fault), [_WEIGHTS.get(each, 1) for each in Fault])[0]
        if fault in launchers and sum(action.fault in launchers for action in found) >= 2:
            continue
        delay = chance.choice([0.0, chance.uniform(0, 1), chance.uniform(0, MOST_SECONDS)])
        found.append(Action(delay_seconds=delay, fault=fault, choice=chance.randrange(1 << 16)))
    return tuple(found)
