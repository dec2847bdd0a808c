"""`hvd-elastic cluster`, with programs on PATH that write down how they were called."""

from datetime import date
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli

GKE = ("--cloud", "gke", "--project", "team", "--region", "us-central1")
POOLS = ("--zone", "us-central1-a", "--machine", "g2-standard-48")


@pytest.fixture(autouse=True)
def on_a_day_on_which_the_default_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.cli.clusters.cluster._today", lambda: date(2026, 11, 28))


def test_a_version_that_has_ended_is_refused() -> None:
    result = cluster("create", "research", *GKE, *POOLS, "--version", "1.34")
    assert "the standard support of GKE went up to 2026-10-01" in str(result.exception)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which the tools write their calls. Only they and the shell's own programs are on PATH."""
    log = tmp_path / "calls"
    log.touch()
    for name in ("gcloud", "kubectl"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\ncase "$*" in *refused*) exit 3;; esac\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return log


def cluster(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", *arguments])


def verbs(calls: Path) -> list[str]:
    return [" ".join(line.split()[:4]) for line in calls.read_text().splitlines()]


def test_nothing_is_called_without_run(calls: Path) -> None:
    result = cluster("create", "research", *GKE, *POOLS)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("#!/bin/sh\n")
    assert cluster("delete", "research", *GKE).stdout.count("Type research to delete") == 1
    assert "Type" not in cluster("delete", "research", *GKE, "--yes").stdout
    assert verbs(calls) == []


def test_run_calls_the_tools_in_order_and_prints_each_call_first(calls: Path) -> None:
    result = cluster("create", "research", *GKE, *POOLS, "--run")
    assert result.exit_code == 0, result.output
    assert verbs(calls) == [
        "gcloud container clusters create",
        "gcloud container node-pools create",
        "gcloud container node-pools create",
        "gcloud container clusters get-credentials",
        "kubectl apply --server-side -f",
        "kubectl patch deployment mpi-operator",
        "kubectl apply -f -",
        "kubectl apply -f -",
    ]
    assert result.stderr.count("\n# ") + 1 == 8


def test_the_first_tool_that_fails_is_the_last_that_is_called(calls: Path) -> None:
    result = cluster("create", "refused", *GKE, *POOLS, "--run")
    assert "gcloud ended with 3" in str(result.exception)
    assert len(verbs(calls)) == 1


def test_a_tool_that_is_missing_is_said_before_anything_is_called(calls: Path) -> None:
    eks = ("--cloud", "eks", "--region", "r", "--zone", "ra", "--zone", "rb", "--machine", "g5.2xlarge")
    result = cluster("create", "research", *eks, "--run")
    assert "not found: aws, eksctl, helm" in str(result.exception)
    assert verbs(calls) == []


def test_a_deletion_lists_the_volumes_and_asks(calls: Path) -> None:
    listed = ["gcloud container clusters get-credentials", "kubectl get persistentvolumes -o"]
    assert cluster("delete", "research", *GKE, "--run").exit_code == 2
    assert verbs(calls) == listed
    assert cluster("delete", "research", *GKE, "--run", "--yes").exit_code == 0
    assert verbs(calls) == [*listed, *listed, "gcloud container clusters delete"]


def test_the_config_of_eksctl_alone() -> None:
    eks = ("--cloud", "eks", "--region", "r", "--zone", "ra", "--zone", "rb", "--machine", "g5.2xlarge")
    (config,) = yaml.safe_load_all(cluster("create", "research", *eks, "--config").stdout)
    assert config["kind"] == "ClusterConfig"
    assert cluster("create", "research", *GKE, *POOLS, "--config").exit_code == 2
