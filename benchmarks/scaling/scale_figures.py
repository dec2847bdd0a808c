"""What was seen of a launcher, as values."""

from dataclasses import dataclass, field
from typing import Final

PHASES: Final = ("start", "a host leaves", "half are left", "all are back")
"""The changes of the world that a job goes through."""
LAUNCH, STOCK = "launch", "horovodrun"
ADDRESS_BYTES: Final = 136
"""Of one process: a sockaddr_storage and a number (`Address::Impl` in Gloo's transport/tcp/address.h)."""
MIB: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class Phase:
    """One change of the world, from the launcher's start or the new list of hosts until all train."""

    cpu: float
    """Seconds."""
    seconds: float
    share: float | None
    """Seconds; see benchmarks/launcher_scale.py. None for the start, in which workers wait for each other's starts."""
    pings: int
    """Of workers for which the others waited, which `launch` asks each second whether they live."""


@dataclass(slots=True, kw_only=True)
class Lookups:
    """Seconds of the launcher's CPU for Gloo's look-ups."""

    short: float
    """One whose answer is a host's name."""
    whole: float
    """One whose answer holds an address for each other process."""
    all_seconds: float | None = None
    """Of all look-ups of one world, if they were made."""


@dataclass(slots=True, kw_only=True)
class Scale:
    """What was seen of a launcher at one size."""

    phases: dict[str, Phase] = field(default_factory=dict)
    mib: float | None = None
    """At full size: the launcher and the Pythons that it starts, memory that they share counted once."""
    lookups: Lookups | None = None
    notice_seconds: list[float] = field(default_factory=list)
    """From a new list of hosts to the notification."""
    failure: str = ""
