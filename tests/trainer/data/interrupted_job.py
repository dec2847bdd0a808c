"""A State and the worlds of one worker that its script goes through, interrupted where a schedule says."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

from hvd_elastic.trainer.data.progress import Progress
from hvd_elastic.trainer.state.elastic_state import State

FAILURE, HOSTS, RESTART = "failure", "hosts", "restart"
Schedule = dict[int, str]
"""What happens at the n-th point of a run. Hosts change at the next commit that comes."""


class Job:
    """A State and the worlds that its script goes through: `elastic.run` in small."""

    def __init__(self, schedule: Schedule | None = None, **values: Any) -> None:
        self.state, self._values = State(**values), values
        self._schedule, self._points, self.worlds = dict(schedule or {}), count(), 0

    def point(self) -> None:
        """A place where a peer or all workers may die, or the launcher may say that hosts have changed."""
        event = self._schedule.get(point := next(self._points))
        if event == HOSTS:
            self.state.on_hosts_updated(point, None)
        if event == RESTART:
            self._restart()
        if event in {FAILURE, RESTART}:
            raise HorovodInternalError("a peer died")

    def commit(self) -> None:
        """Commit, with a point before and after it."""
        self.point()
        self.state.commit()
        self.point()

    def _restart(self) -> None:
        """Load the last commit into a new State, as rank 0 does with a durable checkpoint."""
        committed = self.state._commits.last
        self.state = State(**self._values)
        if committed is not None:
            self.state._present.go_to(Progress.from_state_dict(json.loads(json.dumps(committed["progress"]))))
            self.state._present.objects.load(committed, kinds={})

    def run(self, body: Callable[[State], None]) -> None:
        while True:
            self.worlds += 1
            try:
                self.state.sync()
                return body(self.state)
            except HostsUpdatedInterrupt:
                pass
            except HorovodInternalError:
                self.state.restore()
