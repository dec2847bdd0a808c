"""What becomes of a job's ledger when somebody takes it away or writes over it: it heals, and nothing else suffers."""

from typing import Any

import pytest

from hvd_elastic.discovery.ledger.bounded_ledger import BoundedLedger
from hvd_elastic.mpijob.contract import LEDGER_KEY, LEDGER_SUFFIX
from hvd_elastic.mpijob.manifests.supporting import rbac
from testbed.cluster.site import Site
from testbed.cluster.standing import FAULT_LAUNCHERS, Scenario, nothing_lost
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import told

pytestmark = [
    pytest.mark.timeout(420, func_only=True),
    pytest.mark.parametrize("standing", FAULT_LAUNCHERS, indirect=True),
]

HEALED_SECONDS = 90.0
"""The sidecar looks every half minute."""


def ledger(kubectl: Kubectl, job: str) -> BoundedLedger:
    found: dict[str, Any] = kubectl.find("configmap", f"{job}{LEDGER_SUFFIX}") or {}
    return BoundedLedger.from_text((found.get("data") or {}).get(LEDGER_KEY, ""))


def wait_healed(kubectl: Kubectl, job: str, before: BoundedLedger) -> None:
    waiting.until(
        "the ledger has what it had",
        lambda: ledger(kubectl, job).continues(before),
        within_seconds=HEALED_SECONDS,
        every_seconds=1,
        seen=lambda: ledger(kubectl, job).text[:500],
    )


@pytest.mark.core
def test_a_ledger_that_is_deleted_comes_back_whole(cluster: Site, scenario: Scenario) -> None:
    """Made by the sidecar, with the right to create this one name and no other."""
    kubectl, job = scenario.kubectl, scenario.job
    before, counted = ledger(kubectl, job.name), told(kubectl, "cost", job.name)
    kubectl("delete", "configmap", f"{job.name}{LEDGER_SUFFIX}")
    wait_healed(kubectl, job.name, before)
    (owner,) = kubectl.get("configmap", f"{job.name}{LEDGER_SUFFIX}")["metadata"]["ownerReferences"]
    assert owner["uid"] == kubectl.get("mpijob", job.name)["metadata"]["uid"]
    assert told(kubectl, "cost", job.name)["gpu_seconds"] >= counted["gpu_seconds"]
    status = told(kubectl, "status", job.name)
    assert (status["counts_since"], status["notes"]) == (None, [])
    assert any("LedgerLost" in one["what"] for one in told(kubectl, "events", job.name))
    nothing_lost(scenario.account)


def test_rubbish_in_a_ledger_stops_nothing(cluster: Site, scenario: Scenario) -> None:
    kubectl, job = scenario.kubectl, scenario.job
    before = ledger(kubectl, job.name)
    kubectl.patch("configmap", f"{job.name}{LEDGER_SUFFIX}", {"data": {LEDGER_KEY: "rubbish\n{]\n"}})
    wait_healed(kubectl, job.name, before)
    step = told(kubectl, "status", job.name)["step"]
    waiting.until(
        "the live status goes on",
        lambda: told(kubectl, "status", job.name)["step"] > step,
        within_seconds=HEALED_SECONDS,
        every_seconds=2,
    )
    nothing_lost(scenario.account)


def test_rights_that_are_gone_for_a_moment_end_no_record(cluster: Site, scenario: Scenario) -> None:
    """As of an API server that has not loaded its Roles yet: all that the sidecar asks for is refused with 403."""
    kubectl, job = scenario.kubectl, scenario.job
    before, role = ledger(kubectl, job.name), f"{job.name}{rbac.SUFFIX}"
    rules = kubectl.get("role", role)["rules"]
    kubectl.patch("role", role, {"rules": []})
    try:
        kubectl("delete", "configmap", f"{job.name}{LEDGER_SUFFIX}")
        waiting.until(
            "the sidecar has looked for the ledger and was refused",
            lambda: "lives in memory only" in job.log("discovery"),
            within_seconds=HEALED_SECONDS,
            every_seconds=2,
        )
    finally:
        kubectl.patch("role", role, {"rules": rules})
    wait_healed(kubectl, job.name, before)
    nothing_lost(scenario.account)
