"""Whether this process's pod is about to end, and how long it still waits."""

import os
import time
from collections.abc import Callable
from typing import Final

from hvd_elastic.mpijob.contract import ENV_GRACE_SECONDS, LEAVE_FILE, drain_seconds
from hvd_elastic.trainer.telemetry.heartbeat import run_dir

GRACE_SECONDS: Final = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""

_SHARE: Final = 0.8
"""Part of the grace that a checkpoint may take if the pod is not ending yet: it may begin to end meanwhile."""


def announced() -> bool:
    """Whether PID 1 has received SIGTERM. Costs one stat(2)."""
    return (run_dir() / LEAVE_FILE).exists()


def checkpoint_seconds(*, wall: Callable[[], float] = time.time) -> float:
    """Seconds that a checkpoint may take for which training waits: what is left of the grace once the pod is ending."""
    grace = float(os.environ.get(ENV_GRACE_SECONDS) or GRACE_SECONDS)
    try:
        gone = wall() - (run_dir() / LEAVE_FILE).stat().st_mtime
    except OSError:
        return grace * _SHARE
    return max(0.0, min(grace * _SHARE, drain_seconds(grace) - gone))
