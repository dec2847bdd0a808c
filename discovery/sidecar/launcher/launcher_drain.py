"""What the launcher's pod does before it ends: training leaves, and with it goes no step.

The kubelet sends SIGTERM to the launcher at once, and to a native sidecar only when the launcher has ended (Kubernetes
1.34, `pkg/kubelet/kuberuntime/kuberuntime_termination_order.go`; KEP-753): too late for a checkpoint. But before that
signal it runs the launcher's preStop hook and waits for it (`kuberuntime_container.go`, `killContainer`). So the hook
makes DRAIN_FILE and waits for DRAINED_FILE; what is to be done between them is done here.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import DRAIN_FILE, DRAINED_FILE

log = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 15.0
"""At most, for the last checkpoint. The pod's grace is 30 s, of which the launcher's own end takes up to 5 s."""


class LauncherDrain:
    """Whether the launcher's pod is about to end, and whether it may. Not thread-safe."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._since: float | None = None
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        """Whether the pod waits for the training to leave."""
        return self._since is not None and not self._is_over

    def begins(self, now: float) -> bool:
        """Whether the pod was told to end since the last call. `now`: of a clock that does not jump."""
        if self._since is not None or not (self._run_dir / DRAIN_FILE).exists():
            return False
        self._since = now
        return True

    def end_if_due(self, is_training: Callable[[], bool], now: float) -> None:
        """Let the launcher go once no worker trains, or it is late. Raises OSError."""
        if self._since is None or self._is_over:
            return
        waited = now - self._since
        trains = is_training()
        if trains and waited < DRAIN_SECONDS:
            return
        self._is_over = True
        (self._run_dir / DRAINED_FILE).touch()
        log.info("the launcher ends after %.1f s%s", waited, "; there are workers that still train" if trains else "")
