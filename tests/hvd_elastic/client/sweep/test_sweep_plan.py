"""One job for each point, or everything that is wrong with any of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.sweep.sweep_plan import MAX_NAME, SweepPlan, job_name
from hvd_elastic.mpijob.contract import LABEL_SWEEP
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.hvd_elastic.client.sweep.sweeps import sweep


def refused(*grid: str, at_once: int | None = None, **keys: object) -> str:
    with pytest.raises(InvalidInputError) as caught:
        sweep(*grid, at_once=at_once, **keys)
    return str(caught.value)


def commands(plan: SweepPlan) -> list[list[str]]:
    return [job.spec.command for job in plan.jobs]


def test_a_job_for_each_point() -> None:
    plan = sweep(at_once=3)
    assert [job.spec.batch.global_ for job in plan.jobs] == [256, 512, 256, 512]
    assert commands(plan)[2] == ["python", "train.py", "--lr", "0.01"]
    assert [job.spec.suspend for job in plan.jobs] == [False, False, False, True]
    assert {job.spec.labels[LABEL_SWEEP] for job in plan.jobs} == {"bert"}
    assert plan.needs_runner
    assert not sweep(at_once=4).needs_runner


def test_names_are_the_same_each_time_and_say_the_values() -> None:
    names = [job.spec.name for job in sweep().jobs]
    assert names == [job.spec.name for job in sweep().jobs]
    assert names[0].startswith("bert-lr0-1-global256-")
    assert names[0] == job_name("bert", {"batch.global": "256", "lr": "0.1"}).replace(
        "global256-lr0-1", "lr0-1-global256"
    )
    assert len(set(names)) == 4


@given(
    st.from_regex(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?", fullmatch=True),
    st.dictionaries(st.text(min_size=1, max_size=30), st.text(max_size=30), min_size=1, max_size=5),
)
def test_every_name_is_one_of_a_job(name: str, point: dict[str, str]) -> None:
    from hvd_elastic.mpijob.description.scalar_types import _job_name

    assert len(name) <= MAX_NAME
    assert _job_name(job_name(name, point)).startswith(name)


def test_values_below_mappings_join_those_of_the_description() -> None:
    plan = sweep("env.SEED=1,2", "labels.team=a", env={"MODE": "x"}, labels={"app": "y"})
    assert [job.spec.env for job in plan.jobs] == [{"MODE": "x", "SEED": "1"}, {"MODE": "x", "SEED": "2"}]
    assert plan.jobs[0].spec.labels == {"app": "y", "team": "a", LABEL_SWEEP: "bert"}


def test_short_forms_are_values_too() -> None:
    assert [job.spec.workers.max for job in sweep("workers=1:2,1:8").jobs] == [2, 8]


def test_every_problem_of_every_point_is_told_once() -> None:
    said = refused("lr=1,2", "batch.global=0,x", "workers.min=9").splitlines()
    assert len(said) == 3
    assert said[0].startswith("lr=1 batch.global=0 workers.min=9 and 1 more: --batch-global")
    assert said[1].startswith("lr=1 batch.global=0 workers.min=9 and 3 more: ")
    assert said[2].startswith("lr=1 batch.global=x workers.min=9 and 1 more: --batch-global: 'x'")


def test_what_cannot_be_a_sweep() -> None:
    assert "is longer than the 45 characters" in refused(name="a" * 46)
    assert "suspend" in refused(suspend=True)
    assert "image" in refused(image=None)
    kueue = {"system": "kueue", "name": "q", "whole": True}
    assert "Kueue starts as many" in refused(at_once=1, queue=kueue, checkpoint="s3://b/p")
    assert sweep(queue=kueue, checkpoint="s3://b/p").at_once is None
    assert sweep(at_once=1, queue={"system": "kueue", "name": "q"}).at_once == 1, "it admits workers, not jobs"
