"""What this project's own accounts may change of an MPIJob: the policies' expressions over jobs of `generate`."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from hvd_elastic.client.sweep.runner import resumption
from hvd_elastic.client.sweep.turns import SweepJob
from hvd_elastic.mpijob.manifests.supporting import rbac
from hvd_elastic.setup.platform_kit.mpijob_guard import mpijob_guard
from testbed import admission_policies
from tests.mpijob import admission
from tests.mpijob.jobs import job, one

SPEC = job(namespace="research")
SIDECAR = f"system:serviceaccount:research:{rbac.name(SPEC)}"
RUNNER = "system:serviceaccount:research:search-sweep"
AUTOSCALER = "system:serviceaccount:ops:hvd-elastic-autoscaler"
PERSON = "ann@example.com"
WRITERS = [SIDECAR, RUNNER, AUTOSCALER]

Change = Mapping[str, Any]
REPLICAS = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}}
BEGUN = {"metadata": {"annotations": {"hvd-elastic.dev/begun": "true"}}}
STATUS = {"metadata": {"annotations": {"hvd-elastic.dev/status": "{}"}}}
WANTED = {"metadata": {"annotations": {"hvd-elastic.dev/wanted-workers": "2", "hvd-elastic.dev/autoscaler": "{}"}}}
OWN_IMAGE = [{"name": "launcher", "image": "evil:1"}]


def live() -> dict[str, Any]:
    """A suspended job of a sweep, as the API server has it."""
    made = copy.deepcopy(one(SPEC, "MPIJob"))
    made["metadata"] |= {"uid": "1", "resourceVersion": "7", "generation": 1}
    made["metadata"]["labels"]["hvd-elastic.dev/sweep"] = "search"
    made["metadata"]["annotations"]["hvd-elastic.dev/sweep-turn"] = "3"
    made["spec"]["runPolicy"]["suspend"] = True
    return made


def merged(value: Any, change: Any) -> Any:
    """A merge patch (RFC 7396)."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    base = dict(value) if isinstance(value, Mapping) else {}
    changed = {key: merged(base.get(key), each) for key, each in change.items() if each is not None}
    return {key: each for key, each in base.items() if key not in change} | changed


def refusal(user: str, change: Change, before: Mapping[str, Any] | None = None) -> str:
    """What the API server answers to the patch; empty: it is admitted."""
    before = before or live()
    after = merged(before, change)
    after["metadata"] |= {"generation": 2, "managedFields": [{"manager": "somebody"}]}
    request = {"namespace": "research", "name": before["metadata"]["name"], "userInfo": {"username": user}}
    policies = [each for each in mpijob_guard() if each["kind"] == "ValidatingAdmissionPolicy"]
    said = [admission_policies.refusal(each, request=request, object=after, oldObject=before) for each in policies]
    return "".join(said)


RESUMED = resumption(SweepJob.from_json(live()))


@pytest.mark.parametrize(
    ("user", "change"),
    [(SIDECAR, REPLICAS), (SIDECAR, BEGUN), (SIDECAR, STATUS), (RUNNER, RESUMED), (AUTOSCALER, WANTED)],
)
def test_each_writes_what_it_must(user: str, change: Change) -> None:
    assert refusal(user, change) == ""


@pytest.mark.parametrize(
    ("user", "change"),
    [(SIDECAR, RESUMED), (SIDECAR, WANTED), (RUNNER, REPLICAS), (RUNNER, BEGUN), (AUTOSCALER, REPLICAS)],
)
def test_none_writes_what_another_must(user: str, change: Change) -> None:
    assert refusal(user, change).startswith(f"{user} may change nothing of an MPIJob but ")


@pytest.mark.parametrize("user", WRITERS)
@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"containers": OWN_IMAGE}}}}}},
        {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": OWN_IMAGE}}}}}},
        {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"serviceAccountName": "admin"}}}}}},
        {"spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 2}}}},
        {"spec": {"mpiReplicaSpecs": {"Worker": {"restartPolicy": "Always"}}}},
        {"spec": {"mpiReplicaSpecs": {"Worker": None}}},
        {"spec": {"mpiReplicaSpecs": {"Other": {"replicas": 1}}}},
        {"spec": {"runPolicy": {"backoffLimit": 1000}}},
        {"spec": {"launcherCreationPolicy": "WaitForWorkersReady"}},
        {"spec": {"sshAuthMountPath": "/root"}},
        {"metadata": {"annotations": {"hvd-elastic.dev/job": "{}"}}},
        {"metadata": {"annotations": {"hvd-elastic.dev/job": None}}},
        {"metadata": {"labels": {"hvd-elastic.dev/sweep": "another"}}},
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "rich"}}},
        {"metadata": {"finalizers": ["evil.example.com/stay"]}},
        {"metadata": {"ownerReferences": []}},
    ],
    ids=str,
)
def test_nothing_else_is_theirs(user: str, change: Change) -> None:
    assert refusal(user, change).startswith(f"{user} may change nothing of an MPIJob but ")


def test_a_permitted_change_carries_no_other_with_it() -> None:
    assert refusal(SIDECAR, merged(REPLICAS, {"spec": {"slotsPerWorker": 9}}))


@pytest.mark.parametrize(
    "user", [PERSON, "system:serviceaccount:research:ci", "system:serviceaccount:kueue-system:kueue"]
)
def test_everybody_else_changes_jobs_as_before(user: str) -> None:
    assert refusal(user, {"spec": {"slotsPerWorker": 9}, "metadata": {"labels": {"team": "a"}}}) == ""


def test_the_account_of_another_job_is_nobodys_business() -> None:
    """RBAC names the one job that it may patch."""
    assert refusal("system:serviceaccount:research:other-discovery", REPLICAS) == ""


def test_the_runner_of_a_sweep_is_known_without_the_jobs_label() -> None:
    """Who made the job may have left it out, or named another sweep."""
    before = live()
    for labels in ({}, {"hvd-elastic.dev/sweep": "another"}):
        before["metadata"]["labels"] = labels
        assert refusal(RUNNER, RESUMED, before) == ""
        assert refusal(RUNNER, REPLICAS, before).startswith(f"{RUNNER} may change nothing of an MPIJob but ")
    assert refusal("system:serviceaccount:elsewhere:search-sweep", REPLICAS, before) == "", (
        "no runner changes jobs there"
    )


@pytest.mark.parametrize("user", [SIDECAR, PERSON])
def test_a_job_without_annotations_labels_and_run_policy(user: str) -> None:
    """What is missing is no error, which would refuse the change, whosever it is."""
    before = live()
    for key in ("annotations", "labels"):
        del before["metadata"][key]
    del before["spec"]["runPolicy"]
    assert refusal(user, BEGUN, before) == ""
    assert refusal(user, REPLICAS, before) == ""


def test_they_are_admitted_and_what_cannot_be_judged_is_refused() -> None:
    manifests = mpijob_guard()
    assert [error for each in manifests for error in admission.errors(each)] == []
    for policy, binding in zip(manifests[::2], manifests[1::2], strict=True):
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
