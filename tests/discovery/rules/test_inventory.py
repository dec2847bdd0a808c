from dataclasses import replace

import pytest

from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed
from hvd_elastic.discovery.rules.cluster_views import PodView, WorkerView
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.mpijob.contract import WorkerState

POD = PodView(name="job-worker-0", uid="a", ip="10.0.0.1", owner_uid="job")
STARTING = replace(POD, ready=False, starting=True)


@pytest.fixture
def inventory() -> Inventory:
    made = Inventory(EligibilityRules(slots=1, min_workers=1))
    made.update_owner("job")
    return made


def test_a_worker_is_expected_from_its_address_on_and_while_it_is_offered(inventory: Inventory) -> None:
    inventory.update_pods(Listed((replace(POD, phase="Pending", ready=False, ip=""),)))
    assert inventory.expected == {}
    inventory.update_pods(Changed(STARTING))
    assert inventory.expected == {"a": "10.0.0.1"}
    changes = inventory.expected_changes
    inventory.update_workers({"a": WorkerView()})
    inventory.update_pods(Changed(POD))
    assert [host.uid for host in inventory.eligible_hosts().hosts] == ["a"]
    inventory.update_pods(Changed(replace(POD, ready=False)))  # its process has died
    assert inventory.eligible_hosts().hosts == ()
    assert inventory.expected == {"a": "10.0.0.1"}
    assert inventory.expected_changes == changes, "a launcher's connection outlives all of it"


@pytest.mark.parametrize(
    "leaving",
    [
        replace(POD, disruption="PreemptionByScheduler"),
        replace(POD, deleting_at=1.0),
        replace(POD, phase="Failed"),
        replace(POD, leave=True),
        replace(POD, owner_uid="another job"),
        replace(POD, ip=""),
    ],
)
def test_a_worker_that_leaves_is_not_expected(inventory: Inventory, leaving: PodView) -> None:
    inventory.update_pods(Listed((POD,)))
    inventory.update_workers({"a": WorkerView()})
    changes = inventory.expected_changes
    inventory.update_pods(Changed(leaving))
    assert inventory.expected == {}
    assert inventory.expected_changes > changes


def test_its_own_word_and_its_silence_count(inventory: Inventory) -> None:
    inventory.update_pods(Listed((POD,)))
    assert inventory.expected == {"a": "10.0.0.1"}, "Ready, and not asked yet"
    for view in (WorkerView(state=WorkerState.LEAVING), WorkerView(silent=True, lost=True)):
        inventory.update_workers({"a": view})
        assert inventory.expected == {}


def test_a_deleted_worker_and_a_new_list_are_followed(inventory: Inventory) -> None:
    inventory.update_pods(Listed((POD,)))
    inventory.update_pods(Deleted(POD))
    assert inventory.expected == {}
    inventory.update_pods(Listed((POD, replace(POD, uid="b", name="job-worker-1", ip="10.0.0.2"))))
    assert inventory.expected == {"a": "10.0.0.1", "b": "10.0.0.2"}
