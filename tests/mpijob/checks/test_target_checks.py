"""Jobs without contradictions that a cluster, or one kind of job, cannot run."""

import pytest

from hvd_elastic.mpijob.description.reader import read_job
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job


@pytest.mark.parametrize(
    "keys",
    [
        {"image": ""},
        {"data": {"local": "./data"}},
        {"checkpoint": "file:///tmp/checkpoints"},
        {"checkpoint": "file:///elsewhere", "output": "results"},
    ],
)
def test_what_a_local_run_may_do_and_a_cluster_not(keys: dict[str, object]) -> None:
    given: dict[str, object] = {"name": "a", "image": "b", "command": ["c"]} | keys
    spec = read_job(None, {key: value for key, value in given.items() if value})
    with pytest.raises(InvalidInputError):
        render(spec)


def test_an_image_is_needed() -> None:
    with pytest.raises(InvalidInputError, match="image: None: is missing"):
        render(read_job(None, {"name": "a", "command": ["b"]}))


def test_legacy_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(InvalidInputError, match=r"launcher\.kind"):
        render(job(launcher="launch"), Target.MPIJOB_V1)
