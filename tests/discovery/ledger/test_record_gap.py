"""A ledger that lacks what the live status counts was lost, and one that was not written to the end was not."""

from dataclasses import replace

import pytest

from hvd_elastic.discovery.ledger.entries import Entry, LauncherStarted, WorldChanged
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.ledger.record_gap import SLACK_SECONDS, has_gap

LEDGER: tuple[Entry, ...] = (
    LauncherStarted(unix=0.0, pod="l", uid="1"),
    WorldChanged(unix=100.0, workers=("job-worker-0",)),
)
LIVE = LiveStatus(unix=1000.0, activity=Activity.TRAINING, since=0.0, launchers=1, training_seconds=900.0)


@pytest.mark.parametrize(
    ("ledger", "live", "lacks"),
    [
        pytest.param(LEDGER, LIVE, False, id="whole"),
        pytest.param(LEDGER, None, False, id="nobody has said what it should have"),
        pytest.param((), LIVE, True, id="empty"),
        pytest.param((), replace(LIVE, launchers=0, training_seconds=0.0), False, id="a job at its beginning"),
        pytest.param(LEDGER[:1], LIVE, True, id="its world is lost"),
        pytest.param(LEDGER, replace(LIVE, launchers=2), True, id="a launcher is lost"),
        pytest.param(LEDGER, replace(LIVE, training_seconds=900.0 + SLACK_SECONDS), False, id="not yet written"),
    ],
)
def test_a_ledger_lacks_what_the_live_status_counts(
    ledger: tuple[Entry, ...], live: LiveStatus | None, lacks: bool
) -> None:
    assert has_gap(ledger, live) is lacks
