"""Workers that wait although the stock driver was told of them: they are withdrawn for a moment, and offered again.

Horovod 0.28.1 tells rank 0 of a change once (`runner/elastic/driver.py`, `_notify_workers_host_changes`). It is lost if
rank 0 does not listen yet, between its start and `hvd.elastic.run`, or if it comes while a world is being formed, whose
end forgets it (`common/elastic.py`, `on_reset`). The worker would then wait for the next change, maybe for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.mpijob.contract import WorkerState

PATIENCE_SECONDS: Final = 10.0
"""How long a worker waits before it is offered again; doubled each time: a driver may have reasons of its own."""
MOST_PATIENCE_SECONDS: Final = 300.0
WITHDRAWN_SECONDS: Final = 5.0
"""The driver reads the list each second, and on a busy machine less often."""
STEPS: Final = 2
"""That training must have made meanwhile: a change is acted on between two steps, and not before."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Workers that wait beside those that train, since when, and the step at that time."""

    uids: frozenset[str]
    since: float
    step: int


class UnusedHosts:
    """What is to be withdrawn, from look to look. All times are of one clock that does not jump."""

    def __init__(self) -> None:
        self._waiting: _Waiting | None = None
        self._withdrawn: frozenset[str] = frozenset()
        self._until = 0.0
        self._patience = PATIENCE_SECONDS

    def look(self, usable: Mapping[str, WorkerView], now: float) -> frozenset[str]:
        """UIDs that are not to be offered now. `usable`: by UID, the workers that may be used, these included."""
        waiting = frozenset(uid for uid, worker in usable.items() if worker.state is WorkerState.WAITING)
        # One that was taken after all is offered at once, or its process would be ended.
        self._withdrawn = self._withdrawn & waiting if now < self._until else frozenset()
        if self._withdrawn:
            return self._withdrawn
        step = max((worker.step for worker in usable.values() if worker.state is WorkerState.TRAINING), default=None)
        if not waiting or step is None:
            self._waiting, self._patience = None, PATIENCE_SECONDS
        elif self._waiting is None or waiting - self._waiting.uids or step < self._waiting.step:
            self._waiting = _Waiting(waiting, now, step)
        elif now >= self._waiting.since + self._patience and step >= self._waiting.step + STEPS:
            self._waiting, self._withdrawn, self._until = None, waiting, now + WITHDRAWN_SECONDS
            self._patience = min(2 * self._patience, MOST_PATIENCE_SECONDS)
        return self._withdrawn
