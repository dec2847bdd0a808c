"""Who starts next, as a table of values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.sweep.turns import SweepJob, is_over, next_jobs
from hvd_elastic.mpijob.contract import ANNOTATION_TURN


def job(name: str, **fields: Any) -> SweepJob:
    return SweepJob(**{"name": name, "uid": name, "suspended": False, "ended": False, **fields})


def waiting(name: str, turn: int) -> SweepJob:
    return job(name, suspended=True, turn=turn)


def test_the_first_in_line_starts_when_one_ends() -> None:
    line = [waiting("d", 3), waiting("c", 2)]
    assert next_jobs([job("a"), job("b"), *line], 2) == []
    assert next_jobs([job("a", ended=True), job("b"), *line], 2) == [line[1]]
    assert next_jobs([job("a", ended=True), job("b", ended=True), *line], 2) == [line[1], line[0]]


def test_a_job_that_somebody_suspended_gives_its_place_to_the_next_and_is_left_alone() -> None:
    assert next_jobs([job("a", suspended=True), waiting("b", 5)], 1) == [waiting("b", 5)]
    assert next_jobs([job("a", suspended=True)], 1) == []


def test_it_is_over_when_all_have_ended_or_are_gone() -> None:
    assert is_over([])
    assert is_over([job("a", ended=True)])
    assert not is_over([job("a", ended=True), job("b", suspended=True)])


@given(
    st.lists(st.builds(job, st.sampled_from("abc"), suspended=st.booleans(), ended=st.booleans(),
                       turn=st.none() | st.integers(0, 9)), max_size=20),
    st.integers(1, 5),
)  # fmt: skip
def test_the_cap_is_kept_and_no_room_is_left_while_one_waits(jobs: list[SweepJob], at_once: int) -> None:
    resumed = next_jobs(jobs, at_once)
    running = sum(one.runs for one in jobs)
    assert not resumed or running + len(resumed) <= at_once
    assert len(resumed) == min(max(0, at_once - running), sum(one.waits for one in jobs))


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({}, False),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}]}, False),
        ({"conditions": [{"type": "Failed", "status": "True"}], "completionTime": "2026-01-01T00:00:00Z"}, True),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
    ],
)
def test_an_mpijob_is_read(status: dict[str, Any], ended: bool) -> None:
    meta = {"name": "a", "uid": "u", "annotations": {ANNOTATION_TURN: "7"}}
    read = SweepJob.from_json({"metadata": meta, "spec": {"runPolicy": {"suspend": True}}, "status": status})
    assert read == SweepJob(name="a", uid="u", suspended=True, ended=ended, turn=7)


@pytest.mark.parametrize("turn", ["", "-1", "soon", "²"])
def test_a_turn_that_is_no_number_is_none(turn: str) -> None:
    meta = {"name": "a", "annotations": {ANNOTATION_TURN: turn}}
    assert SweepJob.from_json({"metadata": meta, "spec": {}}).turn is None
