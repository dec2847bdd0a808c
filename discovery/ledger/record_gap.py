"""What a ledger lacks: entries that it once had, or those of a time in which nobody could read it.

Its ConfigMap was deleted, emptied, or written over; or a sidecar began while the API server refused to show it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.entries import Entry, LauncherStarted, RecordLost, WorkerBound
from hvd_elastic.discovery.ledger.history.worker_lives import WorkerLives
from hvd_elastic.discovery.ledger.live_status import LiveStatus

SLACK_SECONDS: Final = 60.0
"""Of training that the ledger may know less of: a sidecar that is killed takes along what it had not written yet."""


def has_gap(ledger: Sequence[Entry], live: LiveStatus | None) -> bool:
    """Whether the job's live status, which is not kept with the ledger, counts more than the ledger does."""
    if live is None:
        return False
    account = fold(ledger, live.unix)
    return live.launchers > account.launchers or live.training_seconds > account.training_seconds + SLACK_SECONDS


def bridged(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[Entry]:
    """`after`, which a sidecar told that could not read `before`, as what goes on from `before`.

    That sidecar has told of all workers that were there as it began: those that only `before` knows had gone by then.
    """
    begun = next((entry for entry in after if isinstance(entry, LauncherStarted)), None)
    if not before or begun is None:
        yield from after
        return
    there = {entry.uid for entry in after if isinstance(entry, WorkerBound)}
    yield from WorkerLives.resume(before).miss(there, job_over=False, now=begun.unix)
    yield from (entry for entry in after if not isinstance(entry, RecordLost))
