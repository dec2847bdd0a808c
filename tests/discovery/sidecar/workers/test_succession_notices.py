from collections.abc import Sequence

import pytest

from hvd_elastic.discovery.sidecar.workers.succession_notices import SuccessionNotices

ONE, BOTH = {"a": "10.0.0.1"}, {"a": "10.0.0.1", "b": "10.0.0.2"}


class Told:
    def __init__(self) -> None:
        self.now: list[str] = []
        self.notices = SuccessionNotices(self._announce)

    def _announce(self, addresses: Sequence[str]) -> int:
        self.now = list(addresses)
        return len(addresses)

    def after(self, leaving: dict[str, str]) -> list[str]:
        """Who is told at this look."""
        self.now = []
        self.notices.take(leaving)
        return self.now


def test_what_is_true_at_one_look_is_said_at_the_next() -> None:
    """A pod that is gone is not made again yet."""
    told = Told()
    assert told.after(BOTH) == []
    assert told.after(BOTH) == ["10.0.0.1", "10.0.0.2"]
    assert told.after(ONE) == ["10.0.0.1"]
    assert told.after(BOTH) == ["10.0.0.1"]


def test_what_is_no_longer_true_is_not_said() -> None:
    told = Told()
    assert [told.after(leaving) for leaving in (ONE, {}, ONE, {}, {}, ONE)] == [[]] * 6


def test_the_log_says_it_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    for leaving in (ONE, ONE, ONE, ONE, {}, ONE, ONE, ONE):
        told.after(leaving)
    assert [record.getMessage() for record in caplog.records] == [
        "all workers leave, and no other can take over: 1 of 1 were told"
    ] * 2
