"""Whether this process's pod is about to end, how long it still waits, and whether it waits for anybody."""

import os
import time
from collections.abc import Callable
from typing import Final

from hvd_elastic.mpijob.contract import (
    ENV_GRACE_SECONDS,
    LAUNCHER_GONE_FILE,
    LEAVE_FILE,
    NO_SUCCESSOR_FILE,
    NO_SUCCESSOR_SECONDS,
    drain_seconds,
)
from hvd_elastic.trainer.telemetry.heartbeat import run_dir

GRACE_SECONDS: Final = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""

_SHARE: Final = 0.8
"""Part of the grace that a checkpoint may take if the pod is not ending yet: it may begin to end meanwhile."""


def announced() -> bool:
    """Whether PID 1 has received SIGTERM. Costs one stat(2)."""
    return (run_dir() / LEAVE_FILE).exists()


def has_lost_launcher() -> bool:
    """Whether nobody will give this process a place any more."""
    return (run_dir() / LAUNCHER_GONE_FILE).exists()


def has_no_successor(*, wall: Callable[[], float] = time.time) -> bool:
    """Whether the pod is about to end and, by the sidecar's last word, no other worker can take this one's state over.

    The sidecar repeats its word while it is true. An old one, or one from after a jump of the clock, does not count.
    """
    try:
        age = wall() - (run_dir() / NO_SUCCESSOR_FILE).stat().st_mtime
    except OSError:
        return False
    return announced() and 0.0 <= age < NO_SUCCESSOR_SECONDS


def checkpoint_seconds(*, wall: Callable[[], float] = time.time) -> float:
    """Seconds that a checkpoint may take for which training waits: what is left of the grace once the pod is ending.

    An age that no pod reaches is a jump of the clock. Then the pod counts as one that ends as of now.
    """
    grace = float(os.environ.get(ENV_GRACE_SECONDS) or GRACE_SECONDS)
    try:
        gone = wall() - (run_dir() / LEAVE_FILE).stat().st_mtime
    except OSError:
        return grace * _SHARE
    left = drain_seconds(grace) - (gone if 0.0 <= gone <= 2 * grace else 0.0)
    return max(0.0, min(grace * _SHARE, left))
