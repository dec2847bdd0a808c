import pytest

from hvd_elastic.trainer.state.agreement import Agreement, Danger


@pytest.mark.parametrize(
    ("hosts", "danger", "stays", "endangered", "secure"),
    [
        pytest.param(False, Danger.NONE, True, False, False, id="nothing"),
        pytest.param(True, Danger.NONE, True, False, False, id="a resize costs no checkpoint"),
        pytest.param(False, Danger.POD, True, False, False, id="peers hold the state of a pod that ends"),
        pytest.param(True, Danger.POD, True, False, False, id="and when it leaves"),
        pytest.param(False, Danger.JOB, True, False, True, id="the job is in danger"),
        pytest.param(True, Danger.NONE, True, True, True, id="it was, and now its world ends: the very last commit"),
        pytest.param(False, Danger.NONE, True, True, False, id="it was, and trains on"),
        pytest.param(False, Danger.POD, False, False, True, id="all pods end"),
        pytest.param(True, Danger.NONE, False, False, True, id="all pods end, and the launcher takes them away"),
        pytest.param(False, Danger.NONE, False, False, False, id="all pods end, the last commit is asked for"),
    ],
)
def test_when_training_waits_for_the_store(
    hosts: bool, danger: Danger, stays: bool, endangered: bool, secure: bool
) -> None:
    assert Agreement(hosts=hosts, danger=danger, stays=stays).must_secure(endangered=endangered) is secure
