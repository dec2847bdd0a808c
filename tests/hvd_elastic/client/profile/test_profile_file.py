"""A profile that was written is read as it was, and what is wrong with one is said at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.client.profile.job_profile import JobProfile, batch_of
from hvd_elastic.client.profile.measured_sizes import MeasuredSize
from hvd_elastic.client.profile.profile_file import profile_from, read_profile
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.policy.job_speeds import StepBatch

PROFILE = JobProfile(
    job="team/bert",
    min=1,
    max=8,
    batch=StepBatch(total=512),
    measured=(
        MeasuredSize(workers=1, nodes=1, steps=100, seconds=53.2),
        MeasuredSize(workers=2, nodes=2, steps=100, seconds=30.0),
        MeasuredSize(workers=4, nodes=4, steps=100, seconds=18.0),
    ),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE.document()))
    assert read_profile(path) == PROFILE
    assert read_profile(path).model.speeds(8) == PROFILE.model.speeds(8)


def test_sizes_that_were_not_measured_have_more_doubt() -> None:
    sizes = PROFILE.sizes()
    assert [one["workers"] for one in sizes] == list(range(1, 9))
    assert [one["measured_seconds"] for one in sizes[:3]] == [0.532, 0.3, None]
    assert sizes[3]["doubt"]["half"] < sizes[2]["doubt"]["half"] < sizes[7]["doubt"]["half"]
    assert sizes[7]["samples_per_second"] > sizes[3]["samples_per_second"]


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({"kind": "Pod"}, ["there"]),
        ({"version": 2}, ["there: version"]),
        ({"batch": {"total": 0}}, ["there: batch"]),
        ({"batch": {"total": "many"}, "max": 0}, ["there: batch", "there: max"]),
        ({"measured": []}, ["there: measured"]),
        ({"measured": [{"workers": 1}, {"workers": 1, "nodes": 2, "steps": 5, "seconds": 1}]}, ["[0]", "[1]"]),
        ({"measured": [{"workers": 1, "nodes": 1, "steps": 0, "seconds": 1}]}, ["[0]"]),
    ],
)
def test_each_problem_is_named(change: dict[str, Any], paths: list[str]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        profile_from({**PROFILE.document(), **change}, source="there")
    problems = raised.value.problems
    assert len(problems) == len(paths)
    assert all(problem.path.endswith(path) for problem, path in zip(problems, paths, strict=True))


@pytest.mark.parametrize("text", ["[", "", "- 1"])
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError):
        read_profile(path)


@pytest.mark.parametrize(
    ("keys", "batch"),
    [
        ("batch: 1024", StepBatch(total=1024)),
        ("batch: {per_worker: 32}\nworkers: {slots: 4}", StepBatch(per_worker=128)),
        ("workers: 4", StepBatch(per_worker=1)),
    ],
)
def test_the_batch_of_a_description(keys: str, batch: StepBatch) -> None:
    assert batch_of(read_job(f"name: a\nimage: b:1\ncommand: [python, train.py]\n{keys}")) == batch
