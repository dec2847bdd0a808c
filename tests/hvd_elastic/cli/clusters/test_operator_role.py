import json

import yaml
from click.testing import CliRunner

from hvd_elastic.cli import cli


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["operator-role", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_role_and_its_binding_to_the_operator() -> None:
    role, binding = yaml.safe_load_all(run("--namespace", "kubeflow", "--service-account", "operator"))
    assert role["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "operator", "namespace": "kubeflow"}]


def test_for_people_and_for_machines() -> None:
    assert "for mpi-operator/mpi-operator" in run("-o", "table")
    assert [item["kind"] for item in json.loads(run("-o", "json"))["items"]] == ["ClusterRole", "ClusterRoleBinding"]
    assert run("-o", "name").split() == [
        "clusterrole.rbac.authorization.k8s.io/hvd-elastic:mpi-operator-resume",
        "clusterrolebinding.rbac.authorization.k8s.io/hvd-elastic:mpi-operator-resume",
    ]
