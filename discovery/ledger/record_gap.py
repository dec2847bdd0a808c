"""Whether a ledger lacks entries that it once had: its ConfigMap was deleted, emptied, or written over."""

from collections.abc import Sequence
from typing import Final

from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.entries import Entry
from hvd_elastic.discovery.ledger.live_status import LiveStatus

SLACK_SECONDS: Final = 60.0
"""Of training that the ledger may know less of: a sidecar that is killed takes along what it had not written yet."""


def has_gap(ledger: Sequence[Entry], live: LiveStatus | None) -> bool:
    """Whether the job's live status, which is not kept with the ledger, counts more than the ledger does."""
    if live is None:
        return False
    account = fold(ledger, live.unix)
    return live.launchers > account.launchers or live.training_seconds > account.training_seconds + SLACK_SECONDS
