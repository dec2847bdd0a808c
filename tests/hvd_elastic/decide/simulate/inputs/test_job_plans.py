"""Jobs of a simulation from job files, and what descriptions do not say."""

from pathlib import Path

import pytest

from hvd_elastic.decide.simulate.inputs.job_plans import PlanWords, job_plans
from hvd_elastic.decide.simulate.inputs.simulated_jobs import (
    JobPlan,
    JobSetting,
    assumptions,
    interval_seconds,
    setting_of,
    simulated_jobs,
)
from hvd_elastic.decide.simulate.inputs.speed_curve import assumed_curve
from hvd_elastic.decide.simulate.time_of_day import clock_time, seconds_of
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError

A = """name: a
image: b:1
command: [python, train.py]
workers: {min: 2, start: 4, max: 8, gpus: 2, grace: 40}
checkpoint: {url: s3://b/c, every: 10m}
batch: {global: 1024}
"""
B = "name: b\nimage: b:1\ncommand: [python, train.py]\nworkers: 1:2\n"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for path, text in zip(paths, (A, B), strict=True):
        path.write_text(text)
    return paths


def test_a_description_says_sizes_grace_interval_and_batch(files: list[Path]) -> None:
    (job,) = simulated_jobs(job_plans(files, PlanWords())[0])
    assert (job.name, job.min, job.start, job.max, job.gpus) == ("a", 2, 4, 8, 2)
    assert (job.grace_seconds, job.checkpoint_every_seconds, job.samples_per_step) == (40, 600, 1024)
    assert len(job.speeds) == 9
    assert job.samples == float("inf")


def test_words_say_the_rest_for_one_job_or_for_all(files: list[Path]) -> None:
    words = PlanWords(start=["2h", "b=30m"], copies=["b=3"], length=["a=1000steps"], checkpoint_cost=["a=2"])
    first, *others = [job for plan in job_plans(files, words) for job in simulated_jobs(plan)]
    assert (first.begins, first.samples, first.checkpoint_seconds) == (7200, 1_024_000, 2)
    assert [(job.name, job.begins) for job in others] == [("b-1", 1800), ("b-2", 1800), ("b-3", 1800)]


@pytest.mark.parametrize(("length", "samples"), [("5000samples", 5000), ("2e3samples", 2000), ("10steps", 10_240)])
def test_a_length_is_in_samples_or_steps(files: list[Path], length: str, samples: float) -> None:
    (job,) = simulated_jobs(job_plans(files[:1], PlanWords(length=[length]))[0])
    assert job.samples == samples


def test_a_length_in_hours_is_that_at_the_descriptions_max_with_any_setting(files: list[Path]) -> None:
    (plan,) = job_plans(files[:1], PlanWords(length=["2h"]))
    (own,) = simulated_jobs(plan)
    (other,) = simulated_jobs(plan, JobSetting(min=1, max=16, grace=30, every=60))
    assert own.samples == other.samples == pytest.approx(7200 * own.speeds[8])


def test_a_setting_replaces_the_descriptions_numbers(files: list[Path]) -> None:
    (plan,) = job_plans(files[:1], PlanWords())
    assert setting_of(plan) == JobSetting(min=2, max=8, grace=40, every=600)
    jobs = simulated_jobs(plan, JobSetting(min=5, max=6, grace=15, every=60, copies=2))
    assert [(job.name, job.min, job.start, job.max, len(job.speeds)) for job in jobs] == [
        ("a-1", 5, 5, 6, 7),
        ("a-2", 5, 5, 6, 7),
    ]


def test_what_is_assumed_is_said(files: list[Path]) -> None:
    said = assumptions(job_plans(files, PlanWords()))
    assert "b: no batch in the description: 256 samples a step" in said
    assert "b: workers without GPUs count as one GPU each" in said
    assert "b: no durable checkpoint: if all workers go at once, it begins anew" in said
    assert any(line.startswith("a: speed assumed: 100 samples/s a worker") for line in said)


def test_an_automatic_interval_follows_the_cost_of_a_checkpoint() -> None:
    assert interval_seconds(300, 5) == 300
    assert 10 <= interval_seconds("auto", 0.1) < interval_seconds("auto", 5) <= 1800


def test_a_batch_that_grows_is_taken_at_the_start_size() -> None:
    spec = read_job(B + "batch: {per_worker: 32}\n")
    plan = JobPlan(spec=spec, curve=assumed_curve())
    assert simulated_jobs(plan)[0].samples_per_step == 32
    assert any("the batch grows with the workers" in line for line in assumptions([plan]))


def test_all_problems_of_words_are_one_error(files: list[Path]) -> None:
    words = PlanWords(
        start=["c=2h", "noon"], copies=["0"], length=["long", "1e400h"], weight=["a=-1"], speed=["a=/none.csv"]
    )
    with pytest.raises(InvalidInputError) as raised:
        job_plans(files, words)
    said = str(raised.value)
    assert "--start: 'c': names none of the jobs a, b" in said
    assert "--start: 'noon': is not a time" in said
    assert "--copies: '0'" in said
    assert "--length: 'long'" in said
    assert "--length: '1e400h'" in said
    assert "--weight: '-1'" in said
    assert "/none.csv: cannot be read" in said
    assert len(raised.value.problems) == 7


def test_bad_files_and_two_jobs_of_one_name_are_one_error(files: list[Path], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: A\n")
    with pytest.raises(InvalidInputError) as raised:
        job_plans([files[0], files[0], wrong], PlanWords())
    assert "name: 'a': is the name of two jobs: --copies plays one job several times" in str(raised.value)
    assert "command" in str(raised.value)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("2h", 7200), ("1.5m", 90), ("1h30m", 5400), ("1d", 86400)])
def test_a_time_is_read_with_units(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "-1",
        "2 h",
        "2x",
        "1.2.3",
        pytest.param("9" * 400, id="400 digits"),
        pytest.param("1" * 40 + "!", id="1111!"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        seconds_of(text)


def test_a_second_of_the_day_is_shown_as_a_clock_does() -> None:
    assert [clock_time(second) for second in (0, 59.6, 3661, 90_000)] == ["0:00:00", "0:01:00", "1:01:01", "25:00:00"]
