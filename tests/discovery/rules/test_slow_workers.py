"""Which slow worker is replaced: one that is slow for long, seldom, alone, and where training goes on without it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.slow_workers import (
    HOLD_SECONDS,
    HOUR_SECONDS,
    MOST_AN_HOUR,
    SAME_NODE_SECONDS,
    Replacement,
    SlowWorker,
    worker_to_replace,
)

NOW = 1e9
PODS = [PodView(name=f"w-{index}", uid=f"u{index}", node=f"n{index}") for index in range(4)]
SLOW = SlowWorker(uid="u1", since=NOW - HOLD_SECONDS, times=1.5, words="rank 1 is slow")


def chosen(
    slow: Sequence[SlowWorker] = (SLOW,),
    past: Sequence[Replacement] = (),
    pods: Sequence[PodView] = PODS,
    *,
    offered: frozenset[str] | None = None,
    **given: Any,
) -> str:
    """The UID; empty: none."""
    found = worker_to_replace(
        slow,
        past,
        {pod.uid: pod for pod in pods},
        frozenset(pod.uid for pod in pods) if offered is None else offered,
        **{"min_workers": 1, "now": NOW, **given},
    )
    return found.uid if found else ""


def before(seconds: float, *, pod: str = "w-3", uid: str = "old", node: str = "elsewhere") -> Replacement:
    return Replacement(unix=NOW - seconds, pod=pod, uid=uid, node=node)


def test_one_that_is_slow_for_long_is_replaced() -> None:
    assert chosen() == "u1"
    assert chosen(()) == ""
    assert chosen(now=NOW - 1) == "", "it was named a moment ago"


def test_of_several_the_slowest_goes_first() -> None:
    slower = SlowWorker(uid="u2", since=NOW - HOLD_SECONDS, times=1.9, words="")
    assert chosen((SLOW, slower)) == "u2"


@pytest.mark.parametrize(("min_workers", "uid"), [(3, "u1"), (4, ""), (5, "")])
def test_training_keeps_its_min_workers(min_workers: int, uid: str) -> None:
    assert chosen(min_workers=min_workers) == uid


def test_only_workers_that_are_used_count() -> None:
    assert chosen(offered=frozenset({"u1", "u2"}), min_workers=2) == ""
    assert chosen(offered=frozenset({"u2", "u3"})) == "", "the slow one has left already"
    assert chosen(pods=[pod for pod in PODS if pod.uid != "u1"], offered=frozenset({"u1", "u2"})) == ""


@pytest.mark.parametrize(("sizes", "uid"), [((1, 2, 4), "u1"), ((4,), ""), ((3, 4), "u1")])
def test_the_size_that_is_left_is_an_allowed_one(sizes: tuple[int, ...], uid: str) -> None:
    assert chosen(sizes=sizes, min_workers=min(sizes)) == uid


@pytest.mark.parametrize("change", [{"deleting_at": NOW}, {"disruption": "PreemptionByScheduler"}, {"leave": True}])
@pytest.mark.parametrize("index", [1, 2])
def test_never_two_at_a_time(index: int, change: dict[str, Any]) -> None:
    one = PODS[index]
    leaving = PodView(name=one.name, uid=one.uid, node=one.node, **change)
    assert chosen(pods=[pod for pod in PODS if pod is not one] + [leaving]) == ""


def test_not_before_the_last_one_has_a_successor_that_is_used() -> None:
    assert chosen(past=[before(60)]) == "u1"
    assert chosen(past=[before(60, uid="u3")]) == "", "the old pod is still there"
    assert chosen(past=[before(60)], offered=frozenset({"u0", "u1", "u2"})) == "", "the new one is not ready"
    assert chosen(past=[before(60, pod="w-9")]) == ""
    assert chosen(past=[before(HOUR_SECONDS, pod="w-9")]) == "u1", "where it has no room, others are not held for ever"


def test_at_most_twice_an_hour() -> None:
    assert chosen(past=[before(600)]) == "u1"
    assert chosen(past=[before(3599), before(600)]) == ""
    assert chosen(past=[before(HOUR_SECONDS), before(600)]) == "u1"
    assert chosen(past=[before(-30), before(-60)]) == "", "a clock that was set back allows no more"


def test_not_again_on_the_same_node() -> None:
    assert chosen(past=[before(2 * HOUR_SECONDS, node="n1")]) == ""
    assert chosen(past=[before(SAME_NODE_SECONDS, node="n1")]) == "u1"


def test_again_where_the_node_is_excluded() -> None:
    """A pod that waited for a GPU as the node was excluded took the place of the one that was replaced."""
    assert chosen(past=[before(2 * HOUR_SECONDS, node="n1")], excluded=frozenset({"n1"})) == "u1"
    assert chosen(past=[before(2 * HOUR_SECONDS, node="n1")], excluded=frozenset({"n2"})) == ""


@given(st.lists(st.tuples(st.floats(0, 600), st.integers(0, 3)), max_size=60), st.integers(1, 4))
def test_whatever_happens_the_limits_hold(story: list[tuple[float, int]], min_workers: int) -> None:
    """All are slow for ever. Now and then a pod gets a node of its own and another UID, as its successor would."""
    now, past, pods = NOW, list[Replacement](), dict(enumerate(PODS))
    for number, (seconds, index) in enumerate(story):
        now += seconds
        slow = [SlowWorker(uid=pod.uid, since=NOW - HOLD_SECONDS, times=1.5, words="") for pod in pods.values()]
        known = {pod.uid: pod for pod in pods.values()}
        found = worker_to_replace(slow, past, known, known.keys(), min_workers=min_workers, now=now)
        if found is not None:
            recent = [one for one in past if now - one.unix < HOUR_SECONDS]
            assert len(recent) < MOST_AN_HOUR
            assert {one.pod for one in recent} <= {pod.name for pod in pods.values()}, "the last one has a successor"
            assert len(known) > min_workers
            pod = pods.pop(next(index for index, pod in pods.items() if pod.uid == found.uid))
            past.append(Replacement(unix=now, pod=pod.name, uid=pod.uid, node=pod.node))
        elif index not in pods:
            pods[index] = PodView(name=f"w-{index}", uid=f"new-{number}", node=f"n-{number}")
