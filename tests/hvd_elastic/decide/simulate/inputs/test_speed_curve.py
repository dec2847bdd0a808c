"""Speeds over workers, from a table and by assumption."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.profile.profile_file import read_profile
from hvd_elastic.decide.simulate.inputs.speed_curve import SpeedCurve, assumed_curve
from hvd_elastic.decide.simulate.inputs.speed_file import read_curve
from hvd_elastic.mpijob.problems import InvalidInputError

TABLE = "workers,steps_per_s\n1,2\n4,6\n8,8\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "speeds.csv"
    path.write_text(TABLE)
    return path


def test_measured_sizes_are_as_measured_in_samples_of_the_batch(table: Path) -> None:
    speeds = read_curve(table).speeds(8, 100)
    assert len(speeds) == 9
    assert (speeds[0], speeds[1], speeds[4], speeds[8]) == pytest.approx((0, 200, 600, 800))


def test_sizes_between_lie_between(table: Path) -> None:
    speeds = read_curve(table).speeds(8, 1)
    assert list(speeds) == sorted(speeds)


def test_sizes_beyond_are_slower_than_ideal_and_it_is_said(table: Path) -> None:
    curve = read_curve(table)
    speeds = curve.speeds(16, 1)
    assert 8 < speeds[16] < 16
    assert curve.extrapolates(16)
    assert not curve.extrapolates(8)
    assert "sizes measured, in workers: 1, 4, 8" in curve.source


def test_the_assumed_curve_loses_a_share_for_each_worker() -> None:
    speeds = assumed_curve(100, 0.05).speeds(3, 256)
    assert speeds == pytest.approx((0, 100, 200 / 1.05, 300 / 1.1))


@given(st.floats(1, 1e6), st.floats(0, 0.9), st.integers(2, 200))
def test_more_workers_are_never_slower_by_assumption(samples: float, loss: float, most: int) -> None:
    speeds = assumed_curve(samples, loss).speeds(most, 1)
    assert list(speeds) == sorted(speeds)
    gains = [after - before for before, after in pairwise(speeds)]
    assert gains == pytest.approx(sorted(gains, reverse=True), rel=1e-6, abs=1e-6 * samples)


@given(st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e3), min_size=1, max_size=6), st.integers(1, 128))
def test_every_size_has_a_speed(points: dict[int, float], most: int) -> None:
    curve = SpeedCurve(source="", points=points)
    speeds = curve.speeds(most, 1)
    assert all(0 < speed < float("inf") for speed in speeds[1:])
    for size, rate in points.items():
        if size <= most:
            assert speeds[size] == pytest.approx(rate)


PROFILE = """{"kind": "JobProfile", "version": 1, "job": "team/train", "min": 1, "max": 3, "batch": {"total": 64},
 "measured": [{"workers": 1, "nodes": 1, "steps": 50, "seconds": 5.0},
              {"workers": 2, "nodes": 2, "steps": 50, "seconds": 3.0}]}
"""


def test_a_profile_gives_its_fit_for_every_size(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(PROFILE)
    curve = read_curve(path)
    model = read_profile(path).model
    assert curve.speeds(3, 999) == pytest.approx((0, *(model.samples_per_second(size) for size in (1, 2, 3))))
    assert curve.speeds(2, 999) == pytest.approx((0, 640, 64 / 0.06), rel=0.02)
    assert (curve.extrapolates(2), curve.extrapolates(3)) == (False, True)
    assert curve.source == "train.json: profile of team/train, sizes measured, in workers: 1, 2"


def test_a_profile_as_a_table_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("workers,nodes,step_seconds,samples_per_second\n1,1,0.1,640\n2,1,0.06,1200\n")
    assert read_curve(path).speeds(2, 999) == pytest.approx((0, 640, 1200))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Job\n", ["is no profile: its kind is not JobProfile"]),
        ('{"kind": "JobProfile", "version": 1, "min": 1, "max": 3, "batch": {"total": 64}}', ["measured: has no size"]),
        ("size,speed\n1,2\n", [":1: 'size,speed': is no table of speeds"]),
        ("workers,steps_per_s\n", ["has no sizes in it"]),
        (
            "workers,steps_per_s\n0,2\n2,x\n3\n4,0\n",
            [
                ":2: '0'",
                ":3: 'x'",
                ":4: '3': has 1 field: write workers, steps_per_s",
                ":5: '0': is not a number above 0 of steps_per_s",
            ],
        ),
    ],
)
def test_a_bad_table_is_one_error_with_its_lines(tmp_path: Path, text: str, said: list[str]) -> None:
    path = tmp_path / "speeds.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError) as raised:
        read_curve(path)
    for words in said:
        assert words in str(raised.value)
    assert len(raised.value.problems) == len(said)
