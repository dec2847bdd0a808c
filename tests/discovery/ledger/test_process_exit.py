"""What a worker says of its last process, in words, and nothing where it says it wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.mpijob.contract import Exit

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"code": 137, "oom": False}, "killed by SIGKILL"),
        ({"code": 137, "oom": True}, "killed by SIGKILL: out of memory"),
        ({"code": 137}, "killed by SIGKILL; whether for want of memory is not known"),
        ({"code": 139, "oom": True}, "killed by SIGSEGV"),
        ({"code": 139}, "killed by SIGSEGV"),
        ({"code": 137, "hung": True}, "hung"),
        ({"code": 143, "hung": True, "told": True}, "hung"),
        ({"code": 143, "told": True}, "ended by its launcher"),
        ({"code": 3}, "exit code 3"),
        ({"code": 78}, "its rendezvous was gone"),
        ({"code": 161}, "killed by signal 33"),
        ({"code": 255}, "exit code 255"),
    ],
)
def test_an_end_in_words(known: dict[str, int], words: str) -> None:
    ended = ProcessExit(seconds=1.0, **known)  # type: ignore[arg-type]
    assert ended.words == words
    assert ended.is_loss


def test_one_that_was_told_to_leave_is_not_lost() -> None:
    assert not ProcessExit(seconds=1.0, code=Exit.REMOVED).is_loss


@given(
    st.floats(0, 1e6),
    st.integers(0, 255),
    st.booleans(),
    st.booleans(),
    st.integers(-1, 10**17),
    st.sampled_from([True, False, None]),
)
def test_a_line_is_read_as_it_was_written(
    seconds: float, code: int, hung: bool, told: bool, step: int, oom: bool | None
) -> None:
    ended = ProcessExit(seconds=seconds, code=code, hung=hung, told=told, step=step, oom=oom)
    assert ProcessExit.from_json(json.loads(ended.to_json())) == ended


@pytest.mark.parametrize(
    "change",
    [
        {"code": 256},
        {"code": -1},
        {"code": True},
        {"code": "137"},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": None},
        {"step": 10**18},
        {"step": 1.5},
    ],
)
def test_what_cannot_be_is_not_known(change: dict[str, object]) -> None:
    assert ProcessExit.from_json({"seconds": 1.0, "code": 137, **change}) is None


@given(JSON)
def test_nothing_else_is_an_end(value: object) -> None:
    assert ProcessExit.from_json(value) is None
