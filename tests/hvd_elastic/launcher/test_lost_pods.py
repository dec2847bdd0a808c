"""Whether lost pods were taken away. Both launchers ask the same class."""

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.launcher.core.hosts.lost_pods import LostPods, LostPodsVerdict

PATIENCE, LEAD = 30.0, 5.0


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod that trained and is lost at `leaves`; `returns`: when its next standby is warm."""

    leaves: float
    returns: float = math.inf


lost_pods = st.lists(
    st.builds(
        lambda leaves, away: Pod(leaves=leaves, returns=leaves + away),
        leaves=st.floats(100.0, 110.0),
        away=st.one_of(st.just(math.inf), st.floats(0.5, 60.0)),
    ),
    min_size=1,
    max_size=5,
)
others = st.lists(st.one_of(st.floats(0.0, 94.0), st.floats(110.5, 200.0)), max_size=3)
"""When pods are listed that are never lost: long before the losses, or after all of them."""


def verdicts(pods: list[Pod], newcomers: list[float]) -> dict[float, LostPodsVerdict]:
    """Play the story; return the verdict after each of its moments, once all pods are lost."""
    lost = LostPods(patience=PATIENCE, lead=LEAD)
    moments = {pod.leaves for pod in pods} | {pod.returns for pod in pods} | set(newcomers)
    moments |= {moment + PATIENCE for moment in moments}
    made: dict[float, LostPodsVerdict] = {}
    lost.set_listed({f"lost-{index}" for index in range(len(pods))}, 0.0)
    for now in sorted(moments - {math.inf}):
        listed = {f"lost-{index}" for index, pod in enumerate(pods) if not pod.leaves <= now < pod.returns}
        for index, pod in enumerate(pods):
            if pod.leaves == now:
                lost.lose(f"lost-{index}", now)
        lost.set_listed(listed | {f"new-{index}" for index, came in enumerate(newcomers) if came <= now}, now)
        if now >= max(pod.leaves for pod in pods):
            made[now] = lost.verdict(now)
    return made


@given(lost_pods, others)
def test_pods_that_come_back_were_not_taken_away_and_all_others_were(pods: list[Pod], newcomers: list[float]) -> None:
    for now, verdict in verdicts(pods, newcomers).items():
        missing = [pod for pod in pods if not now >= pod.returns]
        replaced = any(110.0 < came <= now for came in newcomers)
        if not missing:
            assert verdict is LostPodsVerdict.CAME_BACK
        elif replaced or now >= max(pod.leaves for pod in missing) + PATIENCE:
            assert verdict is LostPodsVerdict.TAKEN_AWAY
        else:
            assert verdict is LostPodsVerdict.UNKNOWN, "a pod may take half a minute until its next standby is warm"


def test_a_pod_that_was_listed_a_moment_before_the_loss_was_known_is_its_successor() -> None:
    for came, verdict in ((96.0, LostPodsVerdict.TAKEN_AWAY), (90.0, LostPodsVerdict.UNKNOWN)):
        lost = LostPods(patience=PATIENCE, lead=LEAD)
        lost.set_listed({"a"}, 0.0)
        lost.set_listed({"a", "b"}, came)
        lost.set_listed({"b"}, 100.0)
        lost.lose("a", 100.0)
        assert lost.verdict(101.0) is verdict


def test_a_pod_that_comes_back_is_nobodys_successor() -> None:
    lost = LostPods(patience=PATIENCE)
    lost.set_listed({"a", "b"}, 0.0)
    lost.set_listed({"a"}, 50.0)
    lost.set_listed(set(), 100.0)
    lost.lose("a", 100.0)
    lost.set_listed({"b"}, 101.0)
    assert lost.verdict(101.0) is LostPodsVerdict.UNKNOWN
    assert lost.deadline == 130.0


def test_what_was_lost_long_ago_is_forgotten() -> None:
    lost = LostPods(patience=PATIENCE)
    lost.set_listed({"a"}, 0.0)
    lost.lose("a", 10.0)
    lost.set_listed(set(), 10.0)
    lost.forget(before=50.0)
    assert lost.verdict(60.0) is LostPodsVerdict.NONE
