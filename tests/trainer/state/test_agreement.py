import pytest

from hvd_elastic.trainer.state.agreement import Agreement, RiskLevel


@pytest.mark.parametrize(
    ("hosts_changed", "risk", "keeps_running", "job_was_at_risk", "waits"),
    [
        pytest.param(False, RiskLevel.NONE, True, False, False, id="nothing"),
        pytest.param(True, RiskLevel.NONE, True, False, False, id="a resize costs no checkpoint"),
        pytest.param(False, RiskLevel.POD, True, False, False, id="peers hold the state of a pod that ends"),
        pytest.param(True, RiskLevel.POD, True, False, False, id="and when it leaves"),
        pytest.param(False, RiskLevel.JOB, True, False, True, id="the job is at risk"),
        pytest.param(True, RiskLevel.NONE, True, True, True, id="it was, and now its world ends: its last commit"),
        pytest.param(False, RiskLevel.NONE, True, True, False, id="it was, and training continues"),
        pytest.param(False, RiskLevel.POD, False, False, True, id="all pods end"),
        pytest.param(True, RiskLevel.NONE, False, False, True, id="all pods end, and the launcher removes their hosts"),
        pytest.param(False, RiskLevel.NONE, False, False, False, id="all pods end, and nothing is requested yet"),
    ],
)
def test_when_training_waits_for_the_store(
    hosts_changed: bool, risk: RiskLevel, keeps_running: bool, job_was_at_risk: bool, waits: bool
) -> None:
    agreement = Agreement(hosts_changed=hosts_changed, risk=risk, keeps_running=keeps_running)
    assert agreement.must_wait_for_store(job_was_at_risk=job_was_at_risk) is waits
