"""What the account that keeps workers off slow nodes may do: read, and change this one thing of an MPIJob."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from hvd_elastic.discovery.kube.node_exclusion import HOSTNAME, REQUIRED, excluding, exclusion_text
from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES
from hvd_elastic.setup.platform_kit.slow_nodes import manifests
from testbed import admission_policies
from tests.hvd_elastic.setup.platform_kit import test_mpijob_guard
from tests.hvd_elastic.setup.platform_kit.test_mpijob_guard import AUTOSCALER, RUNNER, SIDECAR, merged
from tests.mpijob.jobs import job, one

MADE = manifests(image="registry.example.com/hvd:1", namespace="ops")
ACCOUNT = "system:serviceaccount:ops:hvd-elastic-slow-nodes"
POOL = {"key": "pool", "operator": "In", "values": ["a"]}
OWN = {"key": HOSTNAME, "operator": "NotIn", "values": ["node-1"]}
"""What a person has excluded."""
BY_NAME = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
PLACES: dict[str, list[dict[str, Any]]] = {
    "anywhere": [],
    "a pool": [{"matchExpressions": [POOL]}],
    "two, and not everywhere": [{"matchExpressions": [POOL, OWN]}, {"matchFields": [BY_NAME]}],
    "nowhere": [{}],
}

Change = Mapping[str, Any]


def live(terms: list[dict[str, Any]]) -> dict[str, Any]:
    made = copy.deepcopy(one(job(namespace="research"), "MPIJob"))
    made["metadata"] |= {"uid": "1", "resourceVersion": "7", "generation": 1}
    pod = made["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["affinity"] = {"podAffinity": {"a": []}}
    if terms:
        pod["affinity"]["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    return made


def affinity_of(mpijob: Change) -> Any:
    return mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"]


def placed(affinity: Any) -> dict[str, Any]:
    return {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"affinity": affinity}}}}}}


def noted(*nodes: str) -> dict[str, Any]:
    text = exclusion_text(dict.fromkeys(nodes, 1.8e9)) or None
    return {"metadata": {"annotations": {ANNOTATION_EXCLUDED_NODES: text}}}


def with_exclusion(before: Change, *nodes: str, in_place_of: tuple[str, ...] = ()) -> dict[str, Any]:
    """The job as the controller leaves it."""
    after = merged(copy.deepcopy(before), noted(*nodes))
    worker = after["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["affinity"] = excluding(affinity_of(before), nodes, in_place_of=in_place_of)
    return dict(after)


def refusal(before: Change, after: Change, *, user: str = ACCOUNT) -> str:
    """What the API server answers; empty: it is admitted."""
    after = merged(after, {"metadata": {"generation": 2, "managedFields": [{"manager": "somebody"}]}})
    request = {"namespace": "research", "name": before["metadata"]["name"], "userInfo": {"username": user}}
    (policy,) = (one for one in MADE if one["kind"] == "ValidatingAdmissionPolicy")
    return admission_policies.refusal(policy, request=request, object=after, oldObject=before)


def test_it_reads_and_patches_jobs_alone() -> None:
    rules = [rule for one in MADE for rule in one.get("rules", ())]
    changing = [rule for rule in rules if {*rule["verbs"]} - {"list"}]
    assert [(rule["resources"], rule["verbs"]) for rule in changing] == [(["mpijobs"], ["list", "patch"])]


@pytest.mark.parametrize("place", PLACES)
def test_it_may_exclude_nodes_and_take_that_back(place: str) -> None:
    bare = live(PLACES[place])
    first = with_exclusion(bare, "node-7")
    both = with_exclusion(first, "node-7", "node-8", in_place_of=("node-7",))
    assert refusal(bare, first) == ""
    assert refusal(first, both) == ""
    assert refusal(both, first) == ""
    assert refusal(both, with_exclusion(both, in_place_of=("node-7", "node-8"))) == ""
    applied = merged(bare, noted("node-7"))
    assert refusal(applied, first) == "", "somebody has applied the terms away"


@pytest.mark.parametrize("place", [place for place in PLACES if place != "nowhere"])
def test_no_more_than_two_and_none_that_is_not_noted(place: str) -> None:
    bare = live(PLACES[place])
    first = with_exclusion(bare, "node-7")
    assert refusal(bare, with_exclusion(bare, "a", "b", "c"))
    assert refusal(bare, merged(bare, placed(affinity_of(first))))
    assert refusal(bare, merged(first, noted("node-8")))
    assert refusal(bare, merged(bare, noted("node-7")))


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [{"matchExpressions": [POOL]}],
        [{"matchExpressions": [POOL]}, {"matchFields": [BY_NAME]}],
        [{"matchExpressions": [OWN]}, {"matchFields": [BY_NAME]}],
        [{"matchExpressions": [{**POOL, "values": ["b"]}, OWN]}, {"matchFields": [BY_NAME]}],
        [{"matchExpressions": [POOL, OWN]}, {"matchFields": [{**BY_NAME, "values": ["node-2"]}]}],
        [{"matchExpressions": [POOL, OWN]}],
        [{"matchExpressions": [POOL, OWN]}, {"matchFields": [BY_NAME]}, {}],
        [{"matchFields": [BY_NAME]}, {"matchExpressions": [POOL, OWN]}],
    ],
    ids=str,
)
def test_what_else_keeps_the_workers_to_their_nodes_stays(terms: list[dict[str, Any]]) -> None:
    """With the exclusion in each term, and without."""
    bare = live(PLACES["two, and not everywhere"])
    first, other = with_exclusion(bare, "node-7"), live(terms)
    for before in (bare, first):
        assert refusal(before, other)
        assert refusal(before, with_exclusion(other, "node-7"))


IMAGE = [{"name": "worker", "image": "evil:1"}]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"containers": IMAGE}}}}}},
        {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}},
        {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"metadata": {"labels": {"a": "b"}}}}}}},
        {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 0}}}},
        {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"affinity": {}}}}}}},
        {"spec": {"runPolicy": {"suspend": True}}},
        {"metadata": {"annotations": {"hvd-elastic.dev/job": "{}"}}},
        {"metadata": {"annotations": {"hvd-elastic.dev/status": "{}"}}},
        {"metadata": {"labels": {"a": "b"}}},
        placed({"podAffinity": None}),
        placed({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
    ],
    ids=str,
)
def test_it_may_do_nothing_else_to_a_job(change: dict[str, Any]) -> None:
    bare = live(PLACES["a pool"])
    first = with_exclusion(bare, "node-7")
    for after in (merged(bare, change), merged(first, change)):
        assert refusal(bare, after).startswith(f"{ACCOUNT} may change nothing of an MPIJob but which nodes")
        assert refusal(bare, after, user="ann@example.com") == ""


@pytest.mark.parametrize("user", [SIDECAR, RUNNER, AUTOSCALER])
def test_no_other_account_of_ours_may_do_it(user: str) -> None:
    for change in (placed({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}), noted("node-7")):
        assert test_mpijob_guard.refusal(user, change)
