"""`bench scale` against an API server, as a person calls it."""

import csv
import io
import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.client.bench.scale.scaling_report import formula
from hvd_elastic.client.profile.profile_of_job import NotMeasuredError
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.policy.step_time import AllReduceTime, StepTime
from tests.hvd_elastic.cli.decisions.test_profile import NOW, annotations, ledger, tell
from tests.hvd_elastic.client.operations.jobs_cluster import JobsCluster


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["bench", "scale", "bert", *words])


def test_efficiency_is_of_the_smallest_size(job: JobsCluster) -> None:
    """512 samples a step: 1024, 1600 and 2048 a second, where 1024, 2048 and 4096 were ideal."""
    tell(job, ledger((1, 500), (2, 320), (4, 250)))
    said = call()
    assert said.exit_code == 0, said.output
    rows = [line.split() for line in said.stdout.splitlines()]
    assert [row[0] for row in rows[1:4]] == ["1", "2", "4"]
    assert rows[1][5:8] == ["1024", "1024", "100%"]
    assert rows[2][5:8] == ["1600", "2048", "78%"]
    assert rows[3][5:8] == ["2048", "4096", "50%"]
    assert "sizes seen, in workers: 1, 2, 4; 512 samples a step" in said.stdout
    assert "T(K, m) = " in said.stdout


def test_without_one_worker_the_smallest_is_ideal(job: JobsCluster) -> None:
    tell(job, ledger((2, 320), (4, 200)))
    first, second = json.loads(call("-o", "json").stdout)["sizes"]
    assert (first["workers"], first["efficiency"]) == (2, 1.0)
    assert second["ideal_samples_per_second"] == pytest.approx(3200)
    assert second["efficiency"] == pytest.approx(0.8)


def test_csv_and_picture(job: JobsCluster, tmp_path: Path) -> None:
    tell(job, ledger((1, 500), (2, 320), (4, 250)))
    picture = tmp_path / "scale.svg"
    rows = list(csv.DictReader(io.StringIO(call("-o", "csv", "--picture", str(picture)).stdout)))
    assert [row["workers"] for row in rows] == ["1", "2", "4"]
    assert float(rows[2]["efficiency"]) == pytest.approx(0.5)
    svg = ElementTree.fromstring(picture.read_text())
    assert len(svg.findall("{*}circle")) == 3
    assert {"measured", "ideal", "fitted"} <= {text.text for text in svg.findall("{*}text")}


def test_only_the_sizes_that_were_asked_for_and_each_is_visited(
    job: JobsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar is played by whoever sleeps."""
    tell(job, ledger((1, 500), (2, 320), (4, 250)))
    step, visited = 0, list[int]()

    def follow(_seconds: float = 0.0) -> None:
        nonlocal step
        step += 30
        wanted = int(annotations(job).get("hvd-elastic.dev/wanted-workers", "4"))
        visited.append(wanted)
        status = LiveStatus(unix=NOW, activity=Activity.TRAINING, since=NOW, workers=wanted, step=step)
        job.annotate(status=status.to_json())
        job.change_job(spec={"mpiReplicaSpecs": {"Worker": {"replicas": wanted}}})

    monkeypatch.setattr(time, "sleep", follow)
    follow()
    said = call("--sizes", "2,1", "--steps", "20", "-o", "json")
    assert said.exit_code == 0, said.output
    assert [size["workers"] for size in json.loads(said.stdout)["sizes"]] == [1, 2]
    assert list(dict.fromkeys(visited)) == [4, 2, 1]
    assert annotations(job)["hvd-elastic.dev/wanted-workers"] == "4"


def test_a_job_that_has_reported_nothing(job: JobsCluster) -> None:
    assert isinstance(call().exception, NotMeasuredError)


def test_sizes_that_are_none(job: JobsCluster) -> None:
    assert call("--sizes", "1,x").exit_code == 2


def test_the_fit_tells_one_node_from_several_only_where_they_differ() -> None:
    near, far = AllReduceTime(exchange=0.01, per_worker=0.001), AllReduceTime(exchange=0.02, per_worker=0.002)
    same = formula(StepTime(base=0.1, per_sample=0.002, one_node=near, several_nodes=near))
    assert same == "T(K, m) = 0.1 s + 0.002 s * m + 0.01 s * (K-1)/K + 0.001 s * K for K > 1"
    assert "on several 0.02 s" in formula(StepTime(base=0.1, per_sample=0.002, one_node=near, several_nodes=far))
