"""What probes have brought: a worker's last answer, who is silent, who is lost, and what of it is news."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.mpijob.contract import WorkerState

MISSES_TO_LOSE: Final = 3

Views = Mapping[str, WorkerView]
"""By pod UID; a worker that never answered is not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """The results of one worker's probes. Times are of a monotonic clock."""

    view: WorkerView | None = None
    """The last answer; None if it never answered."""
    misses: int = 0
    """In a row."""
    first_miss: float = 0.0
    """When the present row of misses began."""

    def answered(self, view: WorkerView) -> "ProbeRecord":
        """The record after an answer, which cancels all misses."""
        return ProbeRecord(view=view)

    def missed(self, now: float) -> "ProbeRecord":
        """The record after one more miss."""
        return replace(self, misses=self.misses + 1, first_miss=self.first_miss if self.misses else now)

    @property
    def is_silent(self) -> bool:
        """Whether it has missed so many probes in a row that something is wrong, with it or with this side."""
        return self.misses >= MISSES_TO_LOSE

    def is_lost(self, last_answer: float) -> bool:
        """Whether the worker is lost. `last_answer`: when any worker last answered."""
        return self.is_silent and last_answer > self.first_miss

    def judged(self, last_answer: float) -> WorkerView | None:
        """The last answer, and what the misses since then say; None if it never answered."""
        return self.view and replace(self.view, silent=self.is_silent, lost=self.is_lost(last_answer))


class ProbeResults:
    """The records of all workers. Not thread-safe; the properties are safe from any thread."""

    def __init__(self, known: Views, now: float) -> None:
        """`known`: views to start from."""
        self._records = {uid: ProbeRecord(view=view) for uid, view in known.items()}
        self._reported = dict(known)
        self._touched: set[str] = set()
        """Workers whose record has changed since the last report."""
        self._missing: set[str] = set()
        """Workers that have missed MISSES_TO_LOSE probes in a row, or more."""
        self._targets = 0
        self._last_answer = now

    @property
    def views(self) -> Views:
        """The last answer of each worker, heartbeat included."""
        return {uid: record.view for uid, record in list(self._records.items()) if record.view}

    @property
    def probed(self) -> int:
        """How many workers have answered or missed at least once."""
        return sum(record.view is not None or record.misses > 0 for record in list(self._records.values()))

    @property
    def silent(self) -> frozenset[str]:
        """Workers that have missed MISSES_TO_LOSE probes in a row, whoever is to blame."""
        return frozenset(self._missing)

    @property
    def starting(self) -> int:
        """How many of those that are probed have never answered."""
        return self._targets - len(self._reported)

    @property
    def is_own_network_suspect(self) -> bool:
        """Whether no worker answers any more, so that the fault may be on this side.

        Workers that have never answered prove nothing: they start.
        """
        missing = 0 < self._targets <= len(self._missing)
        return missing and bool(self._reported) and not any(view.lost for view in list(self._reported.values()))

    def keep(self, uids: Set[str]) -> None:
        """Forget all workers but these, which are probed from now on."""
        for uid in self._records.keys() - uids:
            del self._records[uid]
            self._reported.pop(uid, None)
        self._touched &= uids
        self._missing &= uids
        self._targets = len(uids)

    def add_answer(self, uid: str, view: WorkerView, now: float) -> None:
        self._last_answer = now
        self._add(uid, self._records.get(uid, ProbeRecord()).answered(view))

    def add_miss(self, uid: str, now: float) -> bool:
        """A probe had no answer in time; return whether an earlier one had."""
        record = self._records.get(uid, ProbeRecord()).missed(now)
        self._add(uid, record)
        return record.view is not None

    def _add(self, uid: str, record: ProbeRecord) -> None:
        self._records[uid] = record
        self._touched.add(uid)
        (self._missing.add if record.is_silent else self._missing.discard)(uid)

    def report_changes(self) -> Views:
        """The views of which more than the heartbeat has changed since the last report."""
        changed: dict[str, WorkerView] = {}
        # Whether the silent are lost depends on the others' answers too, so each report looks at them again.
        for uid in self._touched | self._missing:
            view = self._records[uid].judged(self._last_answer)
            before = self._reported.get(uid)
            if view is not None and (before is None or _reported_part(before) != _reported_part(view)):
                changed[uid] = view
        self._touched.clear()
        self._reported.update(changed)
        return changed


def _reported_part(view: WorkerView) -> tuple[int, WorkerState, bool, bool]:
    return view.generation, view.state, view.silent, view.lost
