"""The other two kinds of jobs that `generate` writes, under the operator that owns them: the training-operator 1.8."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ENV_EVENTS
from testbed.cluster import jobs
from testbed.cluster.site import RESULTS, Site, owned_by_nobody
from testbed.cluster.standing import DURABLE
from testbed.cluster.timeline import Timeline
from testbed.cluster.training import Account
from testbed.kube import trainingoperator, waiting
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("training_operator"),
    pytest.mark.timeout(420, func_only=True),
]

DEADLINE_SECONDS = 180
GLOBAL_BATCH = 48
"""Not what the script asks for."""


@pytest.fixture(scope="module")
def training_operator(cluster: Site) -> Iterator[None]:
    """The training-operator in the MPI Operator's place, while the tests of this module run."""
    machine = cluster.local()
    try:
        trainingoperator.start(machine).require_alive()
        yield
    finally:
        trainingoperator.stop(machine)


def test_first_job_as_a_legacy_mpijob(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    # The operator's own init container says nothing of its security, which `restricted` asks for.
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=baseline", "--overwrite")
    command = ["python", "/workspace/examples/digits_elastic.py", "--epochs", "10"]
    keys = {"launcher": {"kind": "horovodrun", "cpu": "100m"}, "batch": {"global": GLOBAL_BATCH}, "checkpoint": DURABLE}
    shared = _apply(cluster, namespace, "mpijob-v1", command, **keys)
    timeline.mark("applied")
    _wait_succeeded(namespace, "mpijob")
    timeline.mark("succeeded")
    account = Account.read(shared / "events")
    assert account.steps
    assert not account.skipped()
    assert not account.repeated()
    assert {step["samples"] for step in account.steps if _is_first_of_its_epoch(step, account)} == {GLOBAL_BATCH}
    assert any((shared / "checkpoints").rglob("manifests/*.json")), "the job's end is durable"
    said = [log.read_text() for log in (timeline.folder / "logs").glob("digits-launcher.*.launcher.log")]
    accuracies = re.findall(r"accuracy ([\d.]+)", "".join(said))
    assert float(accuracies[-1]) > 0.9
    _nothing_is_left(namespace, shared)

    again = timeline.mark("the same job is applied again")
    namespace.apply((shared / "manifests.yaml").read_text())
    _wait_succeeded(namespace, "mpijob")
    assert not Account.read(shared / "events").since(again).steps, "the checkpoint says that all epochs are done"
    _nothing_is_left(namespace, shared)


def test_first_job_as_a_pytorchjob(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    command = ["python", "/output/scripts/digits_torchrun.py"]
    keys = {"launcher": {"kind": "horovodrun"}, "workers": jobs.workers((1, 1, 3))}
    shared = _apply(cluster, namespace, "pytorchjob", command, **keys)
    timeline.mark("applied")
    _wait_succeeded(namespace, "pytorchjob")
    timeline.mark("succeeded")
    result = json.loads((shared / "result.json").read_text())
    assert result["size"] in range(1, 4)
    assert result["accuracy"] > 0.9
    _nothing_is_left(namespace, shared)


def _is_first_of_its_epoch(step: dict[str, Any], account: Account) -> bool:
    return bool(step["samples"] == min(other["samples"] for other in account.steps if other["epoch"] == step["epoch"]))


def _apply(site: Site, kubectl: Kubectl, target: str, command: list[str], **keys: Any) -> Path:
    """Generate the job as that kind and apply it; returns this machine's view of its /output."""
    jobs.priority_classes(site)
    shared = jobs.share_results(site, kubectl)
    keys |= {"output": {"claim": RESULTS}, "env": {ENV_EVENTS: "/output/events"}}
    manifests = jobs.generate(jobs.describe(site, kubectl, "digits", command, **keys), "--as", target)
    (shared / "manifests.yaml").write_text(manifests)
    kubectl.apply(manifests)
    return shared


def _wait_succeeded(kubectl: Kubectl, kind: str) -> None:
    def succeeded() -> bool:
        job = kubectl.get(kind, "digits")
        assert condition_of(job, "Failed") != "True", _state(kubectl)
        return condition_of(job, "Succeeded") == "True"

    waiting.until(
        f"{kind} digits succeeds",
        succeeded,
        within_seconds=DEADLINE_SECONDS,
        every_seconds=0.5,
        seen=lambda: _state(kubectl),
    )


def _state(kubectl: Kubectl) -> str:
    return kubectl("get", "pods,events", "-o", "wide")


def _nothing_is_left(kubectl: Kubectl, shared: Path) -> None:
    kubectl("delete", "-f", str(shared / "manifests.yaml"), "--wait=true")
    waiting.until(
        "nothing is left behind",
        lambda: not owned_by_nobody(kubectl),
        within_seconds=60,
        seen=lambda: str(owned_by_nobody(kubectl)),
    )
