"""What a job over torch.distributed may ask for, and what of Horovod it may not."""

import json

import pytest

from hvd_elastic.mpijob.checks import job_notes
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job


def refused(**keys: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as error:
        read_job(json.dumps({"name": "fashion", "command": ["python", "train.py"], **keys}))
    return {problem.path: str(problem) for problem in error.value.problems}


def test_all_that_needs_horovod_is_refused_at_once() -> None:
    env = {"HOROVOD_FUSION_THRESHOLD": "1", "MINE": "1"}
    found = refused(engine="torch", launcher="horovodrun", gloo_timeout=60, env=env)
    assert set(found) == {"launcher.kind", "gloo_timeout", "env.HOROVOD_FUSION_THRESHOLD"}
    assert "its workers find each other by Horovod alone, not by torch.distributed" in found["launcher.kind"]


def test_horovodrun_is_not_chosen_in_silence() -> None:
    assert set(refused(engine="torch")) == {"launcher.kind"}


@pytest.mark.parametrize("engine", ["horovod", "torch"])
def test_the_environment_is_not_a_second_way_to_it(engine: str) -> None:
    found = refused(engine=engine, launcher="launch", env={"HVD_ELASTIC_ENGINE": "torch"})
    assert set(found) == {"env.HVD_ELASTIC_ENGINE"}


def test_what_was_not_seen_is_said() -> None:
    words = "engine: torch was not tried on GPUs"
    assert any(words in note for note in job_notes(job(engine="torch", launcher="launch", workers__gpus=1)))
    assert not any(words in note for note in job_notes(job(engine="torch", launcher="launch")))
    assert not any(words in note for note in job_notes(job(launcher="launch", workers__gpus=1)))
