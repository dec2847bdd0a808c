"""Checkpoints by the name of their job, and how those in a folder of its pods are reached."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.cli.inspection.checkpoint_place import NotHereError, place_argument, readable_url
from hvd_elastic.client.operations.submission import submit
from tests.hvd_elastic.client.operations.jobs_cluster import JobsCluster, spec


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsCluster]:
    served = JobsCluster()
    monkeypatch.setenv("KUBECONFIG", str(served.kubeconfig(tmp_path / "kubeconfig")))
    yield served
    served.stop()


@click.command
@place_argument
def where(*, url: str) -> None:
    click.echo(url)


def test_a_job_is_its_url_and_a_url_is_itself(jobs: JobsCluster) -> None:
    submit(jobs.client(), spec(checkpoint="s3://bucket/runs"))
    assert CliRunner().invoke(where, ["bert", "-n", "default"]).output == "s3://bucket/runs/default/bert\n"
    requests = len(jobs.requests)
    assert CliRunner().invoke(where, ["file:///here"]).output == "file:///here\n"
    assert len(jobs.requests) == requests


@pytest.mark.parametrize("verb", ["list", "show", "verify"])
def test_a_folder_of_the_pods_is_told_with_the_way_to_it(jobs: JobsCluster, verb: str) -> None:
    submit(jobs.client(), spec(checkpoint="file:///output/store", output="results"))
    error = CliRunner().invoke(cli, ["checkpoints", verb, "bert"]).exception
    assert isinstance(error, NotHereError)
    assert "kubectl exec -n default bert-worker-0 -- hvd-elastic checkpoints list file:///output/store" in str(error)
    assert "mount the claim results in a pod of the image train:1" in str(error)


def test_a_job_without_checkpoints_and_one_with_a_store_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(NotHereError, match="bert has no `checkpoint`"):
        readable_url(spec())
    own = spec(checkpoint={"url": "s3://b/runs", "endpoint": "https://minio.example.com"})
    assert readable_url(own) == "s3://b/runs/default/bert?endpoint=https://minio.example.com"
    azure = spec(checkpoint={"url": "az://c/runs", "account": "account1"})
    assert readable_url(azure) == "az://c/runs/default/bert?account=account1"
    (tmp_path / "default" / "bert").mkdir(parents=True)
    assert readable_url(spec(checkpoint=f"file://{tmp_path}")) == f"file://{tmp_path}/default/bert"
