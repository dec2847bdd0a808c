"""What passes by itself, how long it is waited for, and what is said of it."""

import pytest

from hvd_elastic.client.connection.cluster_errors import (
    ClusterError,
    ConflictError,
    CredentialsError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from hvd_elastic.client.connection.long_wait import (
    BACKOFF,
    MOST_RETRY_AFTER_SECONDS,
    REFUSED_SECONDS,
    TELL_SECONDS,
    LongWait,
)


class Person:
    """Waits by a clock of his own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.heard: list[str] = []
        self.wait = LongWait(say=self.heard.append, sleep=self.sleep, clock=lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def look(self, error: ClusterError, *, lasts: float, until: float | None = None) -> float:
        """Look at a server that answers with this error for so long; return when it answered."""
        ends = self.now + lasts

        def question() -> float:
            if self.now < ends:
                raise error
            return self.now

        return self.wait.look(question, until=until)


@pytest.mark.parametrize(
    "error", [UnreachableError("gone"), *(RefusedError("", status=code) for code in (410, 429, 500, 502, 503, 504))]
)
def test_it_passes_however_long_it_lasts(error: ClusterError) -> None:
    person = Person()
    assert person.look(error, lasts=86400.0) >= 86400.0
    assert max(person.slept) <= BACKOFF.most_seconds
    assert [said.rpartition(": ")[2] for said in person.heard] == ["trying again", "the API server answers again"]


def test_a_hiccup_is_not_worth_a_line() -> None:
    person = Person()
    person.look(UnreachableError("gone"), lasts=TELL_SECONDS / 2)
    assert person.heard == []


@pytest.mark.parametrize("error", [CredentialsError("401"), ForbiddenError("403")])
def test_a_refusal_may_last_for_a_minute(error: ClusterError) -> None:
    person = Person()
    person.look(UnreachableError("away"), lasts=1.0)
    first = [*[UnreachableError("away")] * 100, error]  # a server that was away for long, and starts

    def starts() -> None:
        if first:
            raise first.pop(0)

    person.wait.look(starts)
    person.look(error, lasts=REFUSED_SECONDS - BACKOFF.most_seconds)
    with pytest.raises(type(error)):
        person.look(error, lasts=2 * REFUSED_SECONDS)


@pytest.mark.parametrize(
    "error", [NotFoundError("404"), ConflictError("409", status=409), RefusedError("", status=422)]
)
def test_an_answer_is_an_answer(error: ClusterError) -> None:
    person = Person()
    with pytest.raises(type(error)):
        person.look(error, lasts=1.0)
    assert person.slept == []


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (3600.0, MOST_RETRY_AFTER_SECONDS)])
def test_the_server_says_when(asked: float, waited: float) -> None:
    person = Person()
    person.look(RefusedError("", status=429, retry_after_seconds=asked), lasts=1.0)
    assert waited < person.slept[0] <= waited + BACKOFF.first_seconds


def test_a_time_limit_holds_in_a_fault_too() -> None:
    person = Person()
    with pytest.raises(UnreachableError):
        person.look(UnreachableError("gone"), lasts=1000.0, until=20.0)
    assert person.now == 20.0
