"""A sweep as a person types it."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, ANNOTATION_STATUS, ENV_NAMESPACE, HvdElasticError
from testbed.kube_api import JOBS
from tests.hvd_elastic.client.operations.jobs_cluster import DESCRIPTION
from tests.hvd_elastic.client.sweep.sweeps import SweepCluster

GRID = ("--grid", "lr=0.1,0.01", "--grid", "batch=256,512")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepCluster]:
    served = SweepCluster()
    monkeypatch.setenv("KUBECONFIG", str(served.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.delenv(ENV_NAMESPACE, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(DESCRIPTION)
    yield served
    served.stop()


def verb(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ("sweep", *words), input=text)


def failure(*words: str) -> HvdElasticError:
    error = verb(*words).exception
    assert isinstance(error, HvdElasticError)
    return error


def test_a_sweep_is_submitted_and_compared(cluster: SweepCluster) -> None:
    done = verb("job.yaml", *GRID, "--at-once", "2")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["JOB", "LR", "BATCH", "START"]
    assert [row.split()[1:] for row in rows] == [
        ["0.1", "256", "now"], ["0.1", "512", "now"], ["0.01", "256", "waits"], ["0.01", "512", "waits"]
    ]  # fmt: skip
    assert cluster.suspended([row.split()[0] for row in rows]) == [False, False, True, True]
    shown = verb("status", "bert")
    assert shown.stdout.splitlines()[0].split() == ["LR", "BATCH", "STATE", "STEP", "LOSS", "JOB"]
    assert shown.stderr == "4 jobs: 2 queued, 2 starting; at most 2 at once\n"
    first, *_ = json.loads(verb("status", "bert", "-o", "json").stdout)["rows"]
    assert first["point"] == {"lr": "0.1", "batch": "256"}
    assert len(verb("status", "bert", "-o", "name").stdout.splitlines()) == 4


def test_a_job_that_ended_and_reported_nothing_is_named(cluster: SweepCluster) -> None:
    verb("job.yaml", *GRID, "--at-once", "2")
    first, second, third, _ = cluster.jobs
    live = LiveStatus(unix=1.0, activity=Activity.ENDED, since=1.0, step=90, loss=0.5)
    for name in (first, second):
        cluster.end(name)
    cluster.change_job(first, metadata={"annotations": {ANNOTATION_STATUS: live.to_json()}})
    cluster.remove(JOBS, third)
    shown = verb("status", "bert")
    assert shown.stderr == (f"4 jobs: 1 gone, 1 queued, 2 succeeded; at most 2 at once; reported nothing: {second}\n")


def test_again_it_says_that_all_is_there(cluster: SweepCluster) -> None:
    verb("job.yaml", *GRID)
    assert {row.split()[-1] for row in verb("job.yaml", *GRID).stdout.splitlines()[1:]} == {"there"}
    error = failure("job.yaml", "--grid", "lr=1")
    assert error.exit_code == 2
    assert "hvd-elastic sweep delete bert" in str(error)


def test_dry_run_of_the_client_needs_no_cluster(cluster: SweepCluster) -> None:
    shown = verb("job.yaml", *GRID, "--at-once", "1", "--dry-run", "client", "-o", "yaml")
    kinds = [one["kind"] for one in yaml.safe_load_all(shown.stdout)]
    assert (kinds.count("MPIJob"), kinds[0], kinds[-1]) == (4, "ConfigMap", "Job")
    assert cluster.requests == []


def test_dry_run_of_the_server_writes_nothing(cluster: SweepCluster) -> None:
    shown = verb("job.yaml", *GRID, "--dry-run", "server")
    assert "nothing was written" in shown.stderr
    assert cluster.written() == []


def test_a_description_from_standard_input_and_options_first(cluster: SweepCluster) -> None:
    done = verb("--grid", "lr=1,2", "-", "--name", "other", "--dry-run", "client", text=DESCRIPTION)
    assert [row.split()[0][:9] for row in done.stdout.splitlines()[1:]] == ["other-lr1", "other-lr2"]


def test_the_command_may_follow_two_dashes(cluster: SweepCluster) -> None:
    shown = verb("--name", "a", "--image", "b", "--grid", "lr=1", "--dry-run", "client", "-o", "yaml", "--", "x", "y")
    job = next(one for one in yaml.safe_load_all(shown.stdout) if one["kind"] == "MPIJob")
    assert json.loads(job["metadata"]["annotations"][ANNOTATION_SPEC])["command"] == ["x", "y", "--lr", "1"]


def test_all_problems_of_grid_and_description_are_one_error(cluster: SweepCluster) -> None:
    Path("job.yaml").write_text(DESCRIPTION + "standby: always\n")
    error = failure("job.yaml", "--grid", "lr")
    assert error.exit_code == 2
    assert "--grid: 'lr': names no values" in str(error)
    assert "standby: 'always': is not known" in str(error)
    assert cluster.written() == []


def test_points_of_a_file(cluster: SweepCluster) -> None:
    Path("points.yaml").write_text("- {lr: 0.1}\n- {lr: 0.01, momentum: 0.9}\n")
    done = verb("job.yaml", "--points", "points.yaml", "--dry-run", "client")
    assert [row.split()[1:] for row in done.stdout.splitlines()[1:]] == [["0.1", "-", "now"], ["0.01", "0.9", "now"]]
    assert verb("job.yaml", "--points", "points.yaml", *GRID).exit_code == 2


def test_stop_resume_and_delete(cluster: SweepCluster) -> None:
    verb("job.yaml", *GRID, "--at-once", "2")
    stopped = verb("stop", "bert")
    assert "bert is stopped; jobs suspended now: 2" in stopped.stderr
    assert "will begin with their first step" in stopped.stderr
    assert "stopped: hvd-elastic sweep resume goes on" in verb("status", "bert").stderr
    assert verb("resume", "bert").stderr == "bert goes on; its runner gives turns\n"
    refused = verb("delete", "bert")
    assert refused.exit_code == 2
    assert "say --yes" in refused.stderr
    assert "configmap/bert-sweep" in verb("delete", "bert", "--yes").stdout
    assert cluster.jobs == []
    assert "there is no sweep bert" in str(failure("status", "bert"))


def test_an_unknown_metric_names_those_that_are_logged(cluster: SweepCluster) -> None:
    verb("job.yaml", "--grid", "lr=1")
    status = json.dumps({"unix": 1, "activity": "training", "since": 1, "metrics": {"accuracy": 0.5}})
    cluster.change_job(cluster.jobs[0], metadata={"annotations": {"hvd-elastic.dev/status": status}})
    assert "; logged: accuracy" in verb("status", "bert", "--metric", "acc").stderr
    assert "0.5" in verb("status", "bert", "--metric", "accuracy", "--best", "max").stdout


def test_what_the_page_says_of_python_runs(cluster: SweepCluster) -> None:
    page = (Path(__file__).parents[4] / "docs" / "sweep.md").read_text(encoding="utf-8")
    block = page.partition("## From Python\n\n")[2].partition("\nThe verbs")[0]
    names: dict[str, object] = {}
    exec(textwrap.dedent(block).replace('"team"', '"default"'), names)
    assert names["best"] == {"lr": "0.1", "batch.global": "256"}
    assert cluster.runner()["spec"]["suspend"] is False


@pytest.mark.core
@pytest.mark.process
def test_the_runner_needs_no_client_of_people() -> None:
    """An image may lack the extra `cluster`."""
    code = (
        "import sys\n"
        "import hvd_elastic.cli.pods.sweep_runner, hvd_elastic.client.sweep.runner\n"
        "import hvd_elastic.discovery.kube.credentials\n"
        "print(*{'urllib3', 'kubernetes', 'pydantic', 'yaml', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


def test_the_runner_says_when_it_is_not_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    error = CliRunner().invoke(cli, ["sweep-runner", "--sweep", "s", "--at-once", "1"]).exception
    assert isinstance(error, HvdElasticError)
    assert error.exit_code == 2
