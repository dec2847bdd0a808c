import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvd_elastic.trainer.state.agreement import Agreement, RiskLevel
from testbed.thread_world import ThreadTrainingWorld, in_each_rank
from tests.properties import examples


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


STAYS = Agreement(hosts_changed=False, risk=RiskLevel.NONE, keeps_running=True)
views = st.builds(
    Agreement,
    hosts_changed=st.booleans(),
    risk=st.sampled_from(RiskLevel),
    keeps_running=st.booleans(),
    gathers=st.booleans(),
)
MOST = (1 << 64) - 1


@settings(max_examples=examples(60))
@example([(STAYS, MOST)] * 3)
@given(st.lists(st.tuples(views, st.integers(0, MOST)), min_size=1, max_size=5))
def test_all_workers_come_to_the_same_view(told: list[tuple[Agreement, int]]) -> None:
    own = [view for view, _ in told]
    agreed = Agreement(
        hosts_changed=any(view.hosts_changed for view in own),
        risk=max(view.risk for view in own),
        keeps_running=any(view.keeps_running for view in own),
        gathers=any(view.gathers for view in own),
    )

    def work(world: ThreadTrainingWorld) -> tuple[Agreement, int]:
        view, digest = told[world.rank()]
        return view.allreduced(digest, world=world)

    expected = agreed, sum(digest for _, digest in told) % (1 << 64)
    assert in_each_rank(len(told), work) == [expected] * len(told)


def test_one_small_operation_and_none_in_a_world_of_one() -> None:
    def said(world: ThreadTrainingWorld) -> list[str]:
        STAYS.allreduced(world=world)
        return world.said

    assert in_each_rank(1, said) == [[]]
    assert in_each_rank(3, said) == [["allreduce hvd_elastic.agreement"]] * 3
