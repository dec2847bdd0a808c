"""Which nodes a job's workers keep off: those that the API server confirms, few, for a day, and never too many."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.slow_nodes.exclusion_decision import (
    EXCLUDED_SECONDS,
    PATIENCE_SECONDS,
    STALE_SECONDS,
    SlowNode,
    WorkerRoom,
    exclude,
    slow_nodes,
    slow_pods,
    still_excluded,
)
from hvd_elastic.discovery.kube.node_exclusion import MOST_NODES
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.slow_workers import HOLD_SECONDS

NOW = 1.8e9
LONG_AGO = NOW - PATIENCE_SECONDS
POD = PodView(name="job-worker-1", uid="u1", node="n1", owner_uid="job", created=NOW - 3600)
ROOMS = [WorkerRoom(name=f"n{index}", workers=2) for index in range(4)]
SLOW = [SlowNode(name="n1", since=LONG_AGO)]


def excluded(
    slow: Sequence[SlowNode] = SLOW,
    before: dict[str, float] | None = None,
    rooms: Sequence[WorkerRoom] = ROOMS,
    min_workers: int = 1,
) -> dict[str, float]:
    return dict(exclude(slow, before or {}, rooms, min_workers=min_workers, now=NOW).until)


def test_it_is_excluded_before_the_sidecar_replaces_the_worker() -> None:
    assert PATIENCE_SECONDS + STALE_SECONDS < HOLD_SECONDS
    status = LiveStatus(unix=NOW, activity=Activity.TRAINING, since=0.0, slow={"a": LONG_AGO, "b": LONG_AGO + 1})
    assert slow_pods(status, NOW) == {"a": LONG_AGO}
    assert slow_pods(status, NOW + STALE_SECONDS) == {"a": LONG_AGO, "b": LONG_AGO + 1}
    assert slow_pods(status, NOW + STALE_SECONDS + 1) == {}, "nobody knows any more"
    assert slow_pods(None, NOW) == {}


@pytest.mark.parametrize(
    ("change", "nodes"),
    [
        ({}, ["n1"]),
        ({"name": "job-worker-2"}, []),
        ({"owner_uid": "another"}, []),
        ({"node": ""}, []),
        ({"created": LONG_AGO + 1}, []),
        ({"deleting_at": NOW}, []),
        ({"phase": "Failed"}, []),
    ],
    ids=str,
)
def test_the_api_server_says_where_the_pod_is(change: dict[str, object], nodes: list[str]) -> None:
    found = slow_nodes({"job-worker-1": LONG_AGO}, [replace(POD, **change)], job_uid="job")  # type: ignore[arg-type]
    assert [one.name for one in found] == nodes


def test_of_several_those_are_excluded_that_have_been_slow_for_longest() -> None:
    pods = [replace(POD, name=f"w-{index}", node=f"n{index}") for index in range(3)]
    slow = slow_nodes({"w-0": LONG_AGO, "w-1": LONG_AGO - 2, "w-2": LONG_AGO - 1}, pods, job_uid="job")
    assert excluded(slow) == {"n1": NOW + EXCLUDED_SECONDS, "n2": NOW + EXCLUDED_SECONDS}
    assert exclude(slow, {}, ROOMS, min_workers=1, now=NOW).refused == ("n0: 2 nodes are excluded already",)


@pytest.mark.parametrize(
    ("rooms", "min_workers", "refused"),
    [
        (ROOMS, 6, ""),
        (ROOMS, 7, "n1: the other nodes hold 6 workers, min is 7"),
        (ROOMS[1:2], 1, "n1: the other nodes hold 0 workers, min is 1"),
        (ROOMS[2:], 1, "n1: no worker may come to it now"),
        ([replace(ROOMS[1], named_by_host=False), *ROOMS[2:]], 1, "n1: its label kubernetes.io/hostname is not its"),
        ([*ROOMS[:3], replace(ROOMS[3], by_karpenter=True)], 1, "n1: Karpenter would start no node for the job"),
    ],
)
def test_none_is_excluded_that_the_job_needs(rooms: Sequence[WorkerRoom], min_workers: int, refused: str) -> None:
    made = exclude(SLOW, {}, rooms, min_workers=min_workers, now=NOW)
    assert (list(made.until), "".join(made.refused)[: len(refused) or None]) == ([] if refused else ["n1"], refused)


def test_what_is_excluded_counts_as_gone() -> None:
    before = {"n0": NOW + 60}
    assert excluded(before=before, min_workers=4) == {**before, "n1": NOW + EXCLUDED_SECONDS}
    assert excluded(before=before, min_workers=5) == before


def test_it_ends_after_a_day_whatever_somebody_wrote() -> None:
    assert still_excluded({"a": NOW, "b": NOW + 1, "c": NOW + 9e9}, NOW) == {"b": NOW + 1, "c": NOW + EXCLUDED_SECONDS}
    before = {"n1": NOW + 60}
    assert excluded(before=before) == before, "one that is slow still, because its worker was not replaced"
    assert excluded(before={"n1": NOW - 1}) == {"n1": NOW + EXCLUDED_SECONDS}


NAMES = st.sampled_from([f"n{index}" for index in range(6)])


@given(
    st.lists(st.builds(SlowNode, name=NAMES, since=st.floats(0, NOW)), max_size=6),
    st.dictionaries(NAMES, st.floats(0, 2 * NOW), max_size=MOST_NODES),
    st.lists(
        st.builds(WorkerRoom, name=NAMES, workers=st.integers(0, 3)), max_size=6, unique_by=lambda room: room.name
    ),
    st.integers(1, 8),
)
def test_it_is_bounded(slow: list[SlowNode], before: dict[str, float], rooms: list[WorkerRoom], least: int) -> None:
    after = excluded(slow, before, rooms, least)
    assert len(after) <= MOST_NODES
    assert all(NOW < until <= NOW + EXCLUDED_SECONDS for until in after.values())
    if after.keys() - before.keys():
        assert sum(room.workers for room in rooms if room.name not in after) >= least
