"""What happens to a job, and when: a pure function of a seed."""

import random
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    GROW = "a host comes"
    SHRINK = "a host goes"
    REPLACE = "all hosts are replaced"
    KILL = "processes are killed"
    KILL_LOADER = "a loader process is killed"
    PREEMPT_ALL = "all pods are told to end"
    LOSE_ALL = "all hosts are lost"
    KILL_LAUNCHER = "the launcher is killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    commit: int
    """It happens once this commit was made for the first time."""
    delay_seconds: float
    """Time from there, so that it falls anywhere within a step."""
    fault: Fault
    choice: int
    """Selects what it strikes."""


class Window(StrEnum):
    """Places in an epoch of `train_mixed.py`, in their order."""

    IN_EVALUATION = "committed-in-evaluation"
    PASS_ENDED = "pass-ended"
    DONE_ONCE = "done-once"
    MICRO_BATCHES = "between-micro-batches"
    LAST_PASS_ENDED = "last-pass-ended"
    RATE_CHANGED = "rate-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AimedEvent:
    """It happens while the first worker that gets there stands in this window of this epoch."""

    epoch: int
    window: Window
    fault: Fault
    choice: int
    """Selects what it strikes."""

    @property
    def gate(self) -> str:
        return f"{self.window}.{self.epoch}"


def aimed(seed: int, epochs: int) -> tuple[AimedEvent, ...]:
    """Return a fault for each window, in the order of training. With six seeds each fault has met each window."""
    faults = [Fault.KILL, Fault.SHRINK, Fault.LOSE_ALL, Fault.GROW, Fault.REPLACE, Fault.KILL_LAUNCHER]
    chance = random.Random(seed)
    found = [
        AimedEvent(
            epoch=(index + seed) % epochs,
            window=window,
            fault=faults[(index + seed) % len(faults)],
            choice=chance.randrange(1 << 16),
        )
        for index, window in enumerate(Window)
    ]
    return tuple(sorted(found, key=lambda event: (event.epoch, list(Window).index(event.window))))


def schedule(seed: int, commits: int) -> tuple[Event, ...]:
    """Return what happens to a job of so many commits: each fault at least once."""
    chance = random.Random(seed)
    faults = [
        *Fault,
        Fault.GROW,
        Fault.KILL,
        *chance.choices([Fault.GROW, Fault.SHRINK, Fault.REPLACE, Fault.KILL], k=2),
    ]
    chance.shuffle(faults)
    moments = sorted(chance.randrange(2, commits - 5) for _ in faults)
    return tuple(
        Event(commit=moment, delay_seconds=chance.uniform(0, 0.05), fault=fault, choice=chance.randrange(1 << 16))
        for moment, fault in zip(moments, faults, strict=True)
    )
