"""`profile` against an API server, as a person calls it."""

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hvd_elastic.cli import cli
from hvd_elastic.client.cluster import Cluster
from hvd_elastic.client.profile.profile_file import profile_from, read_profile
from hvd_elastic.client.profile.profile_of_job import NotMeasuredError
from hvd_elastic.discovery.ledger.entries import Entry, LauncherStarted, WorkerBound, WorldChanged, to_line
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import LEDGER_KEY, LEDGER_SUFFIX
from tests.hvd_elastic.client.operations.jobs_cluster import MAPS, JobsCluster

NOW = 1_800_000_000.0


def ledger(*visits: tuple[int, int]) -> list[Entry]:
    """A job that did a hundred steps at each (workers, milliseconds a step)."""
    unix, step = NOW, 0
    entries: list[Entry] = [LauncherStarted(unix=unix, pod="l", uid="l")]
    entries += [WorkerBound(unix=unix, pod=f"w-{i}", uid=f"w-{i}", node=f"n-{i}") for i in range(4)]
    for workers, milliseconds in (*visits, (1, 0)):
        pods = tuple(f"w-{index}" for index in range(workers))
        entries.append(WorldChanged(unix=unix, workers=pods, step=step, pause_seconds=0.5))
        unix, step = unix + milliseconds / 10 + 0.5, step + 100
    return entries


def tell(cluster: JobsCluster, entries: list[Entry]) -> None:
    text = "".join(map(to_line, entries))
    cluster.put(MAPS, {"metadata": {"name": f"bert{LEDGER_SUFFIX}"}, "data": {LEDGER_KEY: text}})


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["profile", "bert", *words])


def test_the_table_has_what_was_measured_and_what_follows(job: JobsCluster) -> None:
    tell(job, ledger((1, 532), (2, 300), (1, 532)))
    said = call()
    assert said.exit_code == 0, said.output
    rows = [line.split() for line in said.stdout.splitlines()]
    assert rows[1][:5] == ["1", "1", "200", "0.532", "s"]
    assert rows[4][:4] == ["4", "4", "-", "-"]
    assert "sizes seen, in workers: 1, 2; 512 samples a step" in said.stdout


def test_the_document_is_read_again(job: JobsCluster, tmp_path: Path) -> None:
    tell(job, ledger((1, 532), (2, 300), (4, 200)))
    document = json.loads(call("-o", "json").stdout)
    assert profile_from(document, source="it") == Cluster(context="c").profile("bert")
    assert document["sizes"][3]["measured_seconds"] == pytest.approx(0.2)
    (tmp_path / "profile.yaml").write_text(call("-o", "yaml").stdout)
    assert read_profile(tmp_path / "profile.yaml") == profile_from(document, source="it")
    rows = list(csv.DictReader(io.StringIO(call("-o", "csv").stdout)))
    assert [row["workers"] for row in rows] == ["1", "2", "3", "4"]
    assert rows[2]["measured_seconds"] == ""


def test_another_batch(job: JobsCluster) -> None:
    tell(job, ledger((1, 532), (2, 532)))
    document = json.loads(call("--batch-per-worker", "64", "-o", "json").stdout)
    assert document["batch"] == {"per_worker": 64}
    assert document["sizes"][1]["samples_per_second"] == pytest.approx(2 * 64 / 0.532, rel=0.01)
    assert call("--batch-per-worker", "64", "--batch", "128").exit_code == 2


def test_a_job_that_has_reported_nothing(job: JobsCluster) -> None:
    """It says which of the reasons it is; tests/hvd_elastic/client/profile has the others."""
    tell(job, ledger()[:-1])
    error = call().exception
    assert isinstance(error, NotMeasuredError)
    assert str(error).startswith("no size of bert was measured: it has not trained yet")


def test_a_job_without_a_ledger(job: JobsCluster) -> None:
    job.remove(MAPS, f"bert{LEDGER_SUFFIX}")
    assert "it has no ledger, which is what is read" in str(call().exception)


def test_a_job_whose_script_tells_no_steps(job: JobsCluster) -> None:
    """Half an hour at three sizes, with a state of Horovod's own."""
    pods = ("w-0", "w-1", "w-2", "w-3")
    tell(job, [WorldChanged(unix=NOW + 600 * turn, workers=pods[:size]) for turn, size in enumerate((1, 2, 4))])
    said = str(call().exception)
    assert "none of its steps is known. hvd_elastic.State tells them" in said


@pytest.mark.parametrize("sizes", ["1,x", "0", "", "1;2"])
def test_sizes_that_are_none(job: JobsCluster, sizes: str) -> None:
    assert call("--sizes", sizes).exit_code == 2


def test_sizes_are_visited_first(job: JobsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar is played by whoever sleeps."""
    tell(job, ledger((1, 532), (2, 300)))
    step = 0

    def follow(_seconds: float = 0.0) -> None:
        nonlocal step
        step += 30
        wanted = int(annotations(job).get("hvd-elastic.dev/wanted-workers", "4"))
        status = LiveStatus(unix=NOW, activity=Activity.TRAINING, since=NOW, workers=wanted, step=step)
        job.annotate(status=status.to_json())
        job.change_job(spec={"mpiReplicaSpecs": {"Worker": {"replicas": wanted}}})

    monkeypatch.setattr(time, "sleep", follow)
    follow()
    said = call("--sizes", "2")
    assert said.exit_code == 0, said.output
    assert "bert 60 of 50 steps with 2 workers" in said.stderr
    assert annotations(job)["hvd-elastic.dev/wanted-workers"] == "4"


def annotations(cluster: JobsCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.job()["metadata"]["annotations"]
    return found
