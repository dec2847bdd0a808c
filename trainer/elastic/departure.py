"""Whether this process' pod is about to end, and how long it still waits."""

import os
import time
from collections.abc import Callable
from typing import Final

from hvd_elastic.mpijob.contract import ENV_GRACE_SECONDS, LEAVE_FILE, drain_seconds
from hvd_elastic.trainer.telemetry.heartbeat import run_dir

GRACE_SECONDS: Final = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""

_SHARE: Final = 0.8
"""Of the grace: what a checkpoint may take of whose pod does not end yet, but may while it is written."""


def announced() -> bool:
    """Whether PID 1 has got SIGTERM: one stat(2)."""
    return (run_dir() / LEAVE_FILE).exists()


def checkpoint_seconds(*, wall: Callable[[], float] = time.time) -> float:
    """How long a checkpoint that training waits for may take: what is left of the pod's patience where it ends."""
    grace = float(os.environ.get(ENV_GRACE_SECONDS) or GRACE_SECONDS)
    try:
        gone = wall() - (run_dir() / LEAVE_FILE).stat().st_mtime
    except OSError:
        return grace * _SHARE
    return max(0.0, min(grace * _SHARE, drain_seconds(grace) - gone))
