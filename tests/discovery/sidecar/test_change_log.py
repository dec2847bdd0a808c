import logging

import pytest

from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.discovery.sidecar.change_log import LINE_SECONDS, MAX_NAMES, ChangeLog
from hvd_elastic.discovery.sidecar.publisher import SnapshotChange
from hvd_elastic.discovery.snapshot import Host, Snapshot


def host(index: int) -> Host:
    return Host(address=f"10.0.{index // 250}.{index % 250}", slots=1, alias=f"u{index}-0", pod=f"w-{index:04}")


def publish(change_log: ChangeLog, generation: int, *, joined: int = 0, left: int = 0) -> None:
    hosts = tuple(map(host, range(joined)))
    change = SnapshotChange(joined=hosts, left=tuple(map(host, range(left))))
    change_log.add(
        Snapshot(hosts=hosts, generation=generation, uptime_seconds=0, unix_seconds=0),
        change,
        Inventory(EligibilityRules()),
    )


def test_a_single_change_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hvd_elastic.discovery.sidecar.change_log")
    change_log = ChangeLog()
    publish(change_log, 1, joined=1)
    change_log.flush_if_due(100.0)
    assert caplog.messages == ["generation 1: 1 hosts, ok; joined: w-0000; left: none"]


def test_many_changes_are_one_line_that_names_them_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hvd_elastic.discovery.sidecar.change_log")
    change_log = ChangeLog()
    for generation in range(1, 11):
        publish(change_log, generation, joined=1, left=1)
        change_log.flush_if_due(100.0 + generation * LINE_SECONDS / 20)
    assert len(caplog.messages) == 1
    change_log.flush_if_due(100.0 + 2 * LINE_SECONDS)
    assert caplog.messages[1].startswith("generation 2 to 10: 1 hosts, ok; joined: w-0000, ")
    assert caplog.messages[1].count("w-0000 (deleted)") == 9


def test_what_is_not_written_yet_is_written_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hvd_elastic.discovery.sidecar.change_log")
    change_log = ChangeLog()
    for generation in (1, 2):
        publish(change_log, generation, joined=MAX_NAMES + 5)
        change_log.flush_if_due(100.0)
    change_log.flush()
    change_log.flush()
    assert [message.partition(":")[0] for message in caplog.messages] == ["generation 1", "generation 2"]
    assert "w-0099 and 5 more" in caplog.messages[1]
