import logging

import pytest

from discovery.eligibility import Rules
from discovery.journal import GATHER_SECONDS, NAMED, Journal
from discovery.publisher import Change
from discovery.roster import Roster
from discovery.snapshot import Host, Snapshot


def host(index: int) -> Host:
    return Host(address=f"10.0.{index // 250}.{index % 250}", slots=1, alias=f"u{index}-0", pod=f"w-{index:04}")


def note(journal: Journal, generation: int, *, joined: int = 0, left: int = 0) -> None:
    hosts = tuple(map(host, range(joined)))
    change = Change(joined=hosts, left=tuple(map(host, range(left))))
    journal.note(
        Snapshot(hosts=hosts, generation=generation, uptime_seconds=0, unix_seconds=0), change, Roster(Rules())
    )


def test_a_change_that_comes_alone_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "discovery.journal")
    journal = Journal()
    note(journal, 1, joined=1)
    journal.write(100.0)
    assert caplog.messages == ["generation 1: 1 hosts, ok; joined: w-0000; left: none"]


def test_many_changes_are_one_line_that_names_them_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "discovery.journal")
    journal = Journal()
    for generation in range(1, 11):
        note(journal, generation, joined=1, left=1)
        journal.write(100.0 + generation * GATHER_SECONDS / 20)
    assert len(caplog.messages) == 1
    journal.write(100.0 + 2 * GATHER_SECONDS)
    assert caplog.messages[1].startswith("generation 2 to 10: 1 hosts, ok; joined: w-0000, ")
    assert caplog.messages[1].count("w-0000 (deleted)") == 9


def test_what_is_not_written_yet_is_written_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "discovery.journal")
    journal = Journal()
    for generation in (1, 2):
        note(journal, generation, joined=NAMED + 5)
        journal.write(100.0)
    journal.close()
    journal.close()
    assert [message.partition(":")[0] for message in caplog.messages] == ["generation 1", "generation 2"]
    assert "w-0099 and 5 more" in caplog.messages[1]
