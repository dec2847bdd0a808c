"""That a job has begun: its launcher is told, and the MPIJob keeps it for the launchers to come."""

from collections.abc import Callable
from typing import Final

from hvd_elastic.discovery.job_beginning import mark_begun
from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.discovery.sidecar.cluster_actions import ClusterAction, RecordBeginning
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions

RETRY_SECONDS: Final = 30.0
"""Between two tries, and at most for the operator: it matters to the next launcher only."""


class BeginningRecord:
    """`submit` has it written to the MPIJob. Not thread-safe."""

    def __init__(self, submit: Callable[[ClusterAction], None], options: SidecarOptions) -> None:
        self._submit, self._run_dir = submit, options.run_dir
        self._may_be_patched = options.place.may_be_patched
        self._has_begun = False
        self._next_try = self._latest = 0.0

    def update(
        self, job: JobView, is_training: Callable[[], bool], now: float, *, has_work: Callable[[], bool]
    ) -> None:
        """Tell of a beginning that was not told. Raises OSError.

        Args:
            job: as it is now.
            is_training: whether a worker trains.
            now: of a clock that does not jump.
            has_work: whether the MPI Operator has something to do, which a write would disturb (`operator_lag.py`).
        """
        if not self._has_begun and (job.begun or is_training()):
            mark_begun(self._run_dir)
            self._has_begun, self._latest = True, now + RETRY_SECONDS
        if not self._has_begun or job.begun or not self._may_be_patched or now < self._next_try:
            return
        if now >= self._latest or not has_work():
            self._next_try = now + RETRY_SECONDS
            self._submit(RecordBeginning())
