"""What each key makes of the live view."""

from collections.abc import Sequence
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.watch.keyboard import keys
from hvd_elastic.client.watch.screen_state import SPANS, Screen, ScreenState, press

LIST = ScreenState(screen=Screen.LIST, has_list=True)
JOBS = (("team", "a"), ("team", "b"))
PODS = ("a-worker-0", "a-worker-1", "a-worker-2")


def pressed(state: ScreenState, text: Sequence[str], rows: Sequence[object]) -> ScreenState:
    return reduce(lambda before, key: press(before, key, rows=rows), text, state)


def test_into_a_job_its_workers_log_and_back() -> None:
    job = pressed(LIST, ["down", "enter"], JOBS)
    assert (job.screen, job.job, job.row) == (Screen.JOB, ("team", "b"), 0)
    log = pressed(job, ["down", "down", "down", "l"], PODS)
    assert (log.screen, log.pod) == (Screen.LOG, "a-worker-2")
    assert pressed(log, ["escape"], ()).screen is Screen.JOB
    assert pressed(log, ["escape", "b"], ()) == LIST


def test_a_job_that_was_named_has_no_list_to_go_back_to() -> None:
    job = ScreenState(screen=Screen.JOB, job=("team", "a"))
    assert pressed(job, ["escape"], PODS).screen is Screen.JOB


def test_words_are_typed_until_enter() -> None:
    typed = pressed(LIST, ["/", "q", "x", "backspace", "s"], JOBS)
    assert (typed.words, typed.is_typing, typed.ended) == ("qs", True, False)
    assert pressed(typed, ["enter"], JOBS).words == "qs"
    assert pressed(typed, ["escape"], JOBS).words == ""
    assert pressed(typed, ["enter", "q"], JOBS).ended


def test_the_chart_zooms_out_to_the_whole_job_and_back() -> None:
    whole = pressed(LIST, ["-"] * 10, ())
    assert whole.span == -1
    assert pressed(whole, ["+"], ()).span == len(SPANS) - 1
    assert pressed(whole, ["+"] * 20, ()).span == 0


@given(st.lists(st.sampled_from(["up", "down", "enter", "escape", "s", "/", "a", "+", "-", "b", "k", "j", "?"])))
def test_no_keys_lead_out_of_the_rows(text: list[str]) -> None:
    state = LIST
    for key in text:
        rows: Sequence[object] = {Screen.LIST: JOBS, Screen.JOB: PODS, Screen.LOG: ()}[state.screen]
        state = press(state, key, rows=rows)
        assert state.row >= 0
        assert -1 <= state.span < len(SPANS)
        assert (state.job is None) == (state.screen is Screen.LIST)
    assert press(LIST, "enter", rows=()) == LIST


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOAq", ["up", "q"]),
        ("\x1b", ["escape"]),
        ("a\rb\x7f", ["a", "enter", "b", "backspace"]),
        ("\x1b[C\x00x", ["x"]),
    ],
)
def test_what_a_terminal_sends(sent: str, known: list[str]) -> None:
    assert keys(sent) == known
