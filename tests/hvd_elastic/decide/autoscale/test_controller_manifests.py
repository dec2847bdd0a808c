"""What `autoscaler` prints: ready to apply, and no more rights than it uses."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.decide.autoscale.controller_manifests import manifests

Json = dict[str, Any]


def generated(*arguments: str) -> list[Json]:
    done = CliRunner().invoke(cli, ["autoscaler", "-o", "json", *arguments])
    assert done.exit_code == 0, done.output
    items: list[Json] = json.loads(done.stdout)["items"]
    return items


def rights(items: list[Json]) -> set[tuple[str, str, str]]:
    return {
        (item["kind"], resource, verb)
        for item in items
        for rule in item.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_all_parts_are_there_in_the_order_of_need() -> None:
    kinds = [item["kind"] for item in generated("--image", "registry/hvd:1", "--namespace", "ops")]
    rights = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert kinds == [*rights, "Lease", "ConfigMap", "NetworkPolicy", "Deployment"]


def test_it_may_change_nothing_but_jobs_and_what_it_owns() -> None:
    changing = {right for right in rights(generated("--image", "i")) if right[2] not in {"get", "list", "watch"}}
    assert changing == {
        ("ClusterRole", "mpijobs", "patch"),
        ("ClusterRole", "events", "create"),
        ("Role", "configmaps", "patch"),
        ("Role", "leases", "patch"),
    }


def test_of_buffers_it_may_change_the_one_that_it_is_given() -> None:
    items = generated("--image", "i", "--buffer", "serving/spare")
    (role,) = (item for item in items if item["kind"] == "Role" and item["metadata"]["namespace"] == "serving")
    assert role["rules"] == [
        {
            "apiGroups": ["autoscaling.x-k8s.io"],
            "resources": ["capacitybuffers"],
            "resourceNames": ["spare"],
            "verbs": ["patch"],
        }
    ]
    (pod,) = (item["spec"]["template"]["spec"] for item in items if item["kind"] == "Deployment")
    assert " --buffer serving/spare" in " ".join(pod["containers"][0]["command"])
    refused = CliRunner().invoke(cli, ["autoscaler", "--image", "i", "--buffer", "spare"])
    assert (refused.exit_code, "'spare' is not NAMESPACE/NAME" in refused.output) == (2, True)


def test_its_own_rights_are_of_objects_that_are_made_for_it() -> None:
    items = generated("--image", "i", "--namespace", "ops")
    (role,) = (item for item in items if item["kind"] == "Role")
    named = {name for rule in role["rules"] for name in rule["resourceNames"]}
    made = {item["metadata"]["name"]: item for item in items if item["kind"] in {"Lease", "ConfigMap"}}
    assert named == made.keys()
    assert not any({"spec", "data"} & item.keys() for item in made.values()), "to apply it again must change nothing"


def test_nobody_reaches_its_pods_and_they_reach_the_api_server_alone() -> None:
    items = {item["kind"]: item for item in generated("--image", "i")}
    policy, pod = items["NetworkPolicy"]["spec"], items["Deployment"]["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert (policy["policyTypes"], policy.get("ingress", [])) == (["Ingress", "Egress"], [])
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [443, 6443]


def test_for_some_namespaces_it_may_change_jobs_only_there() -> None:
    items = manifests(image="i", namespace="ops", of_jobs=("team-a", "team-b"))
    assert ("ClusterRole", "mpijobs", "patch") not in rights(items)
    where = [item["metadata"]["namespace"] for item in items if item["kind"] == "Role"]
    assert where == ["team-a", "team-b", "ops"]
    command = items[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-4:] == ["--namespace", "team-a", "--namespace", "team-b"]


def test_the_pod_is_one_that_restricted_admits() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    pod = generated("--image", "i")[-1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"readinessProbe", "livenessProbe", "resources"} <= set(container)


def test_the_command_of_the_deployment_is_one_that_the_verb_understands() -> None:
    command = generated("--image", "i")[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:2] == ["hvd-elastic", "autoscale"]
    assert CliRunner().invoke(cli, [*command[1:], "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "Missing option '--image'"), (("job.yaml", "--image", "i"), "job.yaml")]
)
def test_what_it_cannot_use_is_an_error(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, ["autoscaler", *arguments])
    assert done.exit_code == 2
    assert said in done.output
