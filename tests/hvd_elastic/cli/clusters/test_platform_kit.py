import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hvd_elastic.cli.clusters.platform_kit import command
from hvd_elastic.mpijob.problems import InvalidInputError


def run(*arguments: str) -> tuple[str, str]:
    """Standard output, and standard error."""
    ran = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout, ran.stderr


def contents(folder: Path) -> dict[Path, str]:
    return {path.relative_to(folder): path.read_text() for path in folder.rglob("*.yaml")}


def test_the_names_are_all_the_files_that_are_there(tmp_path: Path) -> None:
    out, _ = run(str(tmp_path / "kit"), "--allow", "serving", "--image", "r/i:1", "-o", "name")
    assert {Path(line) for line in out.splitlines()} == {tmp_path / "kit" / path for path in contents(tmp_path / "kit")}


def test_for_people_and_for_machines(tmp_path: Path) -> None:
    out, _ = run(str(tmp_path), "--with", "alerts", "-o", "json")
    rows = {row["part"]: row for row in json.loads(out)}
    assert rows["priorityclasses"]["objects"] == 4
    assert [rows[part]["applied"] for part in ("alerts", "dashboard")] == ["yes", "where it is named"]
    out, err = run(str(tmp_path))
    assert out.splitlines()[0].split() == ["PART", "FILE", "OBJECTS", "APPLIED", "FOR"]
    assert "may use inference-pc and floor-pc; --allow and --allow-floor say who may" in err
    assert "no autoscaler: --image adds it" in err


def test_the_name_of_a_class_reaches_every_part(tmp_path: Path) -> None:
    run(str(tmp_path), "--inference", "live", "--allow", "serving")
    for file in ("priorityclasses", "guard", "components/alerts/alerts", "components/dashboard/dashboard"):
        text = (tmp_path / f"{file}.yaml").read_text()
        assert "live" in text
        assert "inference-pc" not in text


@pytest.mark.parametrize(
    "flag", ["--namespace", "--operator-namespace", "--operator-account", "--monitoring-namespace"]
)
def test_a_name_that_kubernetes_does_not_take(flag: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(command, [str(tmp_path / "kit"), flag, "MPI operator"])
    assert ran.exit_code == 2
    assert "'MPI operator' is not the name of a Kubernetes object" in " ".join(ran.output.split())
    assert not (tmp_path / "kit").exists()


def test_another_account_of_the_operator(tmp_path: Path) -> None:
    run(str(tmp_path), "--operator-namespace", "kubeflow", "--operator-account", "operator")
    _, binding = yaml.safe_load_all((tmp_path / "operator-role.yaml").read_text())
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "operator", "namespace": "kubeflow"}]


def test_the_same_options_write_the_same_files_and_fewer_options_fewer(tmp_path: Path) -> None:
    full = ("--allow", "serving", "--quota", "serving=4", "--image", "r/i:1", "--with", "dashboard")
    run(str(tmp_path / "a"), *full)
    run(str(tmp_path / "b"))
    run(str(tmp_path / "b"), *full)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    run(str(tmp_path / "a"))
    assert not {Path("guard.yaml"), Path("autoscaler.yaml")} & contents(tmp_path / "a").keys()


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        (("--quota", "serving=4"), {"--allow"}),
        (("--allow", "serving/", "--preemptible", "=many"), {"--allow", "--preemptible"}),
        (("--label", "release"), {"--label"}),
        (("--queue-gpus", "many"), {"--queue-gpus"}),
        (("--queue-gpus", "14:2:gpu"), {"--queue-gpus"}),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    tmp_path: Path, arguments: tuple[str, ...], paths: set[str]
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        CliRunner().invoke(command, [str(tmp_path / "kit"), *arguments], catch_exceptions=False)
    assert {problem.path for problem in caught.value.problems} == paths
    assert not (tmp_path / "kit").exists()
