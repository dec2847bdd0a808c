"""How many workers fit on a node by what it has, and on which none may be."""

from typing import Any

import pytest

from hvd_elastic.decide.slow_nodes.exclusion_decision import WorkerRoom
from hvd_elastic.decide.slow_nodes.worker_room import WorkerNeeds

HAS = {"pods": "110", "cpu": "3920m", "memory": "16Gi", "nvidia.com/gpu": "4"}


def node(*, labels: dict[str, str] | None = None, has: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", **(labels or {})}},
        "spec": spec,
        "status": {"conditions": ready, "allocatable": has or HAS},
    }


def needs(*resources: dict[str, Any], **spec: Any) -> WorkerNeeds:
    return WorkerNeeds.from_json({"containers": [{"resources": one} for one in resources] or [{}], **spec})


@pytest.mark.parametrize(
    ("resources", "workers"),
    [
        ([], 110),
        ([{"requests": {"cpu": "1"}}], 3),
        ([{"requests": {"cpu": "100m"}, "limits": {"cpu": "4", "memory": "5Gi"}}], 3),
        ([{"limits": {"nvidia.com/gpu": "1"}}, {"requests": {"cpu": "1500m"}}], 2),
        ([{"limits": {"amd.com/gpu": "1"}}], 0),
        ([{"requests": {"cpu": "0"}}], 110),
    ],
    ids=str,
)
def test_as_many_fit_as_the_scarcest_resource_allows(resources: list[dict[str, Any]], workers: int) -> None:
    assert needs(*resources).room_on(node()) == WorkerRoom(name="n1", workers=workers)


TAINT = {"key": "spot", "effect": "NoSchedule"}
OTHER_POOL = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]}]}


@pytest.mark.parametrize(
    ("placed", "there"),
    [
        (node(labels={"pool": "a"}), {"nodeSelector": {"pool": "b"}}),
        (node(), {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": OTHER_POOL}}}),
        (node(taints=[TAINT]), {}),
        (node(unschedulable=True), {}),
    ],
    ids=["selector", "affinity", "taint", "cordoned"],
)
def test_no_worker_may_be_on_a_node_that_it_is_kept_off(placed: dict[str, Any], there: dict[str, Any]) -> None:
    assert needs(**there).room_on(placed) is None
    assert needs(tolerations=[{"operator": "Exists"}]).room_on(node(taints=[TAINT])) is not None


def test_what_a_node_is_called_and_who_made_it() -> None:
    found = needs().room_on(node(labels={"kubernetes.io/hostname": "n1.local", "karpenter.sh/nodepool": "spot"}))
    assert found == WorkerRoom(name="n1", workers=110, named_by_host=False, by_karpenter=True)
