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
