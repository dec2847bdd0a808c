"""`autoscale` works or is an error: each kind of job has its own autoscaler."""

import json
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError


def paths(target: Target, autoscale: object, **workers: object) -> set[str]:
    """Of the problems that a job has."""
    job: dict[str, Any] = {
        "name": "one",
        "image": "registry/train:1",
        "command": ["python", "train.py"],
        "workers": {"min": 2, "max": 8, "gpus": 2, **workers},
        "autoscale": autoscale,
    }
    try:
        render(read_job(json.dumps(job)), target)
    except InvalidInputError as error:
        return {problem.path for problem in error.problems}
    return set()


@pytest.mark.parametrize(
    ("target", "autoscale", "wrong"),
    [
        (Target.MPIJOB, "shared", set()),
        (Target.MPIJOB, {"weight": 2, "quota": 4, "buy": True, "budget": 100, "cooldown": "1m"}, set()),
        (Target.MPIJOB, {"cpu_percent": 70}, {"autoscale.cpu_percent"}),
        (Target.MPIJOB, {"cpu_percent": 70, "budget": 5}, {"autoscale.cpu_percent", "autoscale.budget"}),
        (Target.MPIJOB, {"quota": 3}, {"autoscale.quota"}),
        (Target.MPIJOB_V1, "shared", {"autoscale"}),
        (Target.PYTORCHJOB, {"cpu_percent": 70, "cooldown": 60}, set()),
        (Target.PYTORCHJOB, {"weight": 2, "buy": False}, {"autoscale.weight", "autoscale.buy"}),
    ],
)
def test_a_key_of_another_autoscaler_is_an_error(target: Target, autoscale: object, wrong: set[str]) -> None:
    assert paths(target, autoscale) == wrong


def test_workers_without_gpus_have_nothing_to_share() -> None:
    assert paths(Target.MPIJOB, "shared", gpus=0) == {"autoscale"}


def test_all_defaults_reach_the_cluster() -> None:
    """The annotation leaves out what equals its default, but not that the job is to be autoscaled."""
    text = "{name: one, image: i, command: [x], workers: {max: 4, gpus: 1}, autoscale: shared}"
    job = render(read_job(text))[-1]
    assert read_job(job["metadata"]["annotations"][ANNOTATION_SPEC]).autoscale is not None
