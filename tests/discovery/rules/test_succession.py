"""Workers are told that nobody follows only if all leave and nobody can: told wrongly, they take the state along."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.discovery.rules.succession import MAX_AGE_SECONDS, without_successor
from testbed.kube_api import OWNER, pod

Json = dict[str, Any]

GRACE = "2026-01-01T00:00:30Z"
ENDED = ("Succeeded", "Failed")


def view(index: int, **given: Any) -> PodView:
    return PodView.from_json(pod(index, **given))


def leaving(index: int = 0, **given: Any) -> PodView:
    return view(index, deleting=GRACE, **given)


def unplaced(index: int, **given: Any) -> PodView:
    """Pending, and the scheduler has found no node."""
    return view(index, **{"phase": "Pending", "ready": False, "node": "", "ip": "", "scheduled": "False", **given})


def alone(*pods: PodView, age_seconds: float = 0.0) -> set[str]:
    return set(without_successor(pods, age_seconds=age_seconds))


MAY_FOLLOW: dict[str, PodView] = {
    "trains or waits": view(9),
    "is not ready yet": view(9, ready=False),
    "is bound and pulls its image": view(9, phase="Pending", ready=False, ip=""),
    "the scheduler has made room for it": unplaced(9, nominated="node-a"),
    "no scheduler has looked at it yet": unplaced(9, scheduled=""),
    "is marked, and not deleted yet": view(9, disrupted="PreemptionByScheduler"),
    "its node is not heard of": view(9, withdrawn=True),
    "has failed, and is made again": view(9, phase="Failed", ready=False),
    "has left, and is made again": leaving(9, phase="Succeeded", ready=False),
}


def test_a_worker_that_leaves_beside_pods_without_a_place_is_alone() -> None:
    assert alone(leaving(disrupted="PreemptionByScheduler"), unplaced(1), unplaced(2)) == {"uid-job-0"}


def test_so_are_several() -> None:
    assert alone(leaving(0), leaving(1), unplaced(2)) == {"uid-job-0", "uid-job-1"}


def test_the_last_workers_of_a_job_with_no_others_are() -> None:
    assert alone(leaving(0)) == {"uid-job-0"}


@pytest.mark.parametrize("other", MAY_FOLLOW.values(), ids=MAY_FOLLOW.keys())
def test_a_pod_that_may_join_keeps_the_hand_over(other: PodView) -> None:
    assert alone(leaving(0), leaving(1), unplaced(2), other) == set()


def test_an_old_list_says_nothing() -> None:
    """Whoever is not seen may have been bound since."""
    assert alone(leaving(0), age_seconds=MAX_AGE_SECONDS) == {"uid-job-0"}
    assert alone(leaving(0), age_seconds=MAX_AGE_SECONDS + 0.1) == set()


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """A pod in any state, possible or not."""
    return pod(
        draw(st.integers(0, 4)),
        phase=draw(st.sampled_from(["Pending", "Running", "Running", *ENDED])),
        ready=draw(st.booleans()),
        withdrawn=draw(st.booleans()),
        node=draw(st.sampled_from(["", "", "node-a"])),
        scheduled=draw(st.sampled_from(["True", "False", "False", "Unknown", ""])),
        nominated=draw(st.sampled_from(["", "", "node-b"])),
        disrupted=draw(st.sampled_from(["", "PreemptionByScheduler"])),
        deleting=draw(st.sampled_from(["", GRACE, GRACE])),
    )


def may_follow(each: Json) -> bool:
    """What the API server says, read by hand: the pod is not about to go, and has or may get a node."""
    placed = each["spec"].get("nodeName") or each["status"].get("nominatedNodeName")
    judged = {"type": "PodScheduled", "status": "False"}.items() <= each["status"]["conditions"][0].items()
    goes = "deletionTimestamp" in each["metadata"] and each["status"]["phase"] not in ENDED
    return not goes and bool(placed or not judged)


@given(st.lists(pods(), max_size=5), st.floats(0, 2 * MAX_AGE_SECONDS))
def test_only_those_that_leave_are_told_and_only_if_nobody_may_follow(found: list[Json], age_seconds: float) -> None:
    told = alone(*map(PodView.from_json, found), age_seconds=age_seconds)
    leave = {each["metadata"]["uid"] for each in found if "deletionTimestamp" in each["metadata"]}
    assert told <= leave
    if told:
        assert age_seconds <= MAX_AGE_SECONDS
        assert not any(may_follow(each) for each in found)


@given(st.lists(pods().filter(lambda each: not may_follow(each)), min_size=1, max_size=5))
def test_all_that_hold_a_gpu_are_told_if_nobody_may_follow(found: list[Json]) -> None:
    bound = {
        each["metadata"]["uid"]
        for each in found
        if each["spec"].get("nodeName") and each["status"]["phase"] not in ENDED
    }
    assert alone(*map(PodView.from_json, found)) >= bound


@given(st.lists(pods(), min_size=1, max_size=5), st.data())
def test_a_pod_more_never_adds_to_those_that_are_told_but_itself(found: list[Json], data: st.DataObject) -> None:
    more = data.draw(pods())
    more["metadata"]["uid"] = "another"
    before = alone(*map(PodView.from_json, found))
    assert alone(*map(PodView.from_json, [*found, more])) - {"another"} <= before


@given(st.lists(pods(), max_size=12))
def test_pods_of_others_do_not_count(changes: list[Json]) -> None:
    """As news come and go: an earlier job of the same name keeps nobody, and nobody leaves for it."""
    inventory = Inventory(EligibilityRules(owner_uid=OWNER))
    inventory.update_pods(Listed((view(7, owner="earlier", uid="stranger"), leaving(8, owner="earlier", uid="other"))))
    present: dict[str, PodView] = {}
    for each in changes:
        changed = PodView.from_json(each)
        if changed.uid in present and changed == present[changed.uid]:
            inventory.update_pods(Deleted(changed))
            del present[changed.uid]
        else:
            inventory.update_pods(Changed(changed))
            present[changed.uid] = changed
        assert alone(*inventory.own_pods()) == alone(*present.values())
