import json

import pytest
import yaml
from click.testing import CliRunner

from hvd_elastic.cli.clusters.priorityclasses import command
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import DEFAULTS, manifest
from tests.mpijob import admission


def printed(*arguments: str) -> str:
    ran = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def problems(*arguments: str) -> set[str]:
    with pytest.raises(InvalidInputError) as caught:
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    return {problem.path for problem in caught.value.problems}


def test_the_defaults_as_yaml() -> None:
    assert list(yaml.safe_load_all(printed())) == [manifest(one) for one in DEFAULTS]


def test_as_json() -> None:
    listing = json.loads(printed("-o", "json"))
    assert listing["kind"] == "List"
    assert [item["metadata"]["name"] for item in listing["items"]] == [one.name for one in DEFAULTS]


def test_names_for_pipes() -> None:
    assert printed("-o", "name").splitlines()[0] == "priorityclass.scheduling.k8s.io/inference-pc"


def test_a_table_for_people() -> None:
    lines = printed("-o", "table").splitlines()
    assert lines[0].split()[:3] == ["NAME", "VALUE", "PREEMPTION"]
    assert lines[1].split()[:3] == ["inference-pc", "100000000", "PreemptLowerPriority"]


def test_names_and_values_can_be_redefined() -> None:
    found = list(
        yaml.safe_load_all(
            printed(
                "--inference",
                "live=900",
                "--preserved",
                "kept=800",
                "--preemptible",
                "=700",
                "--global-default",
                "kept",
            )
        )
    )
    assert [(one["metadata"]["name"], one["value"], one.get("globalDefault")) for one in found] == [
        ("live", 900, None),
        ("floor-pc", 900, None),
        ("kept", 800, True),
        ("preemptible-pc", 700, None),
    ]
    assert all(admission.errors(one) == [] for one in found)


def test_what_is_wrong() -> None:
    assert problems("--inference", "system-x=1", "--preserved", "a=many", "--global-default", "b") == {
        "classes[0].name",
        "classes[1].value",
        "--preserved",
        "--global-default",
    }
    assert "--global-default" in problems("--global-default", "inference-pc", "--global-default", "preserved-pc")


def test_a_guard_follows_the_classes() -> None:
    arguments = (
        "--inference",
        "live",
        "--guard",
        "--allow",
        "serving",
        "--allow",
        "batch/scorer",
        "--quota",
        "serving=4",
    )
    found = list(yaml.safe_load_all(printed(*arguments)))
    assert [one["kind"] for one in found[4:]] == [
        "ResourceQuota",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    assert "'live'" in found[5]["spec"]["matchConditions"][0]["expression"]
    assert found[5]["spec"]["validations"][0]["expression"].endswith("in ['batch/scorer']")
    floor = list(yaml.safe_load_all(printed(*arguments, "--allow-floor", "lab", "--quota-floor", "lab=2")))[7:]
    assert [one["kind"] for one in floor] == ["ResourceQuota", *(one["kind"] for one in found[7:])]
    assert floor[1]["spec"]["validations"][0]["expression"].startswith("request.namespace in ['lab']")
    assert "4 GPUs in serving" in printed(*arguments, "-o", "table")
    assert "4 GPUs, 8 amd.com/gpu in serving" in printed(*arguments, "--quota", "serving=8:amd.com/gpu", "-o", "table")


def test_a_guard_says_what_is_wrong() -> None:
    assert problems("--guard") == {"--allow"}
    assert problems("--allow", "serving") == {"--allow"}
    assert problems("--quota", "serving=4") == {"--quota"}
    assert problems("--quota-floor", "lab=4") == {"--quota-floor"}
    assert problems("--guard", "--allow", "a", "--quota-floor", "lab=x") == {"--quota-floor"}
    assert problems("--guard", "--allow", "serving/", "--quota", "serving=many") == {"--allow", "--quota"}
