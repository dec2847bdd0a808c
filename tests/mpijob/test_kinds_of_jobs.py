"""Every key means something in every kind of job, or is refused there."""

import pytest

from hvd_elastic.mpijob.description.keys import KEYS
from hvd_elastic.mpijob.description.target import Target
from tests.mpijob.kinds_of_jobs import NOTHING, READ_ELSEWHERE, SAMPLES, YES, is_storage, outcome, section


def test_no_key_is_forgotten() -> None:
    leaves = {path for path, key in KEYS.items() if key.section is None and not is_storage(path)}
    assert leaves == set(SAMPLES)


@pytest.mark.parametrize("key", SAMPLES)
def test_a_key_means_something_in_an_mpijob(key: str) -> None:
    found = outcome(key, Target.MPIJOB)
    if found == NOTHING:
        assert section(key) in READ_ELSEWHERE
    else:
        assert found == YES or key == "autoscale.cpu_percent", found


@pytest.mark.parametrize("target", [Target.MPIJOB_V1, Target.PYTORCHJOB])
@pytest.mark.parametrize("key", SAMPLES)
def test_a_key_means_something_in_another_kind_or_is_refused(key: str, target: Target) -> None:
    if outcome(key, target) == NOTHING:
        assert outcome(key, Target.MPIJOB) == NOTHING
