"""A job whose `stage` has changed is submitted again."""

import json
from typing import Any

import pytest

from hvd_elastic.cli import cli
from hvd_elastic.client.connection.cluster_errors import ForbiddenError
from hvd_elastic.client.operations.submission import Submission, submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.mpijob.description.job_spec import JobSpec
from testbed.kube_api import Request, Status
from tests.hvd_elastic.client.operations.jobs_cluster import MAPS, JobsCluster, spec

BATCH = "/apis/batch/v1/namespaces/default/jobs"


def staged(source: str = "s3://bucket/old", **keys: Any) -> JobSpec:
    return spec(data="claim", stage={"source": source, **keys})


@pytest.fixture(autouse=True)
def _serves_jobs(cluster: JobsCluster) -> None:
    cluster.objects.setdefault(BATCH, {})


def changes(done: Submission) -> dict[str, str]:
    """What changes, by kind: `{"job": ["deleted", "created"]}` without what stays."""
    found: dict[str, list[str]] = {}
    for one in done.changes:
        if one.change != "unchanged":
            found.setdefault(one.name.partition("/")[0], []).append(one.change)
    return {kind: " ".join(all_of_it) for kind, all_of_it in found.items()}


def copies(cluster: JobsCluster) -> list[str]:
    """The URLs that are copied."""
    templates = [one["spec"]["template"]["spec"] for one in cluster.objects[BATCH].values()]
    commands = [pod["containers"][0]["command"] for pod in templates]
    return [command[command.index("--source") + 1] for command in commands]


def waited_for(cluster: JobsCluster) -> str:
    """The URL for which the gates of all pods wait."""
    return str(json.loads(cluster.objects[MAPS]["bert-stage"]["data"]["stage.json"])["source"])


def end(cluster: JobsCluster, condition: str = "Complete") -> None:
    for name in cluster.objects[BATCH]:
        cluster.patch(BATCH, name, {"status": {"conditions": [{"type": condition, "status": "True"}]}})


def test_another_data_set_is_copied_instead_and_waited_for(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())
    before = cluster.job()["spec"]
    done = submit(cluster.client(), staged("s3://bucket/new"))
    assert changes(done) == {"job": "deleted created", "configmap": "configured", "mpijob": "configured"}
    assert copies(cluster) == ["s3://bucket/new"]
    assert waited_for(cluster) == "s3://bucket/new"
    assert cluster.job()["spec"] == before  # pods and the launcher's Job could not be given other arguments


def test_the_same_again_changes_nothing(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())
    assert changes(submit(cluster.client(), staged())) == {}
    end(cluster)
    assert changes(submit(cluster.client(), staged())) == {}


def test_a_rehearsal_says_it_and_does_nothing(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())
    cluster.requests.clear()
    done = submit(cluster.client(), staged("s3://bucket/new"), dry_run=True)
    assert changes(done) == {"job": "deleted created", "configmap": "configured", "mpijob": "configured"}
    lines = {line[:1] + line[1:].strip() for one in done.changes for line in one.diff.splitlines()}
    assert {"-- s3://bucket/old", "+- s3://bucket/new"} <= lines
    assert cluster.written() == []
    assert copies(cluster) == ["s3://bucket/old"]


@pytest.mark.parametrize("words", [["--diff"], ["--dry-run", "server"], []])
def test_people_are_told(cluster: JobsCluster, words: list[str], tmp_path: Any, monkeypatch: Any) -> None:
    from click.testing import CliRunner

    submit(cluster.client(), staged())
    (name,) = cluster.objects[BATCH]
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "config")))
    file = tmp_path / "job.yaml"
    file.write_text("{name: bert, image: 'train:1', workers: '1:4', command: [python, train.py], data: claim, "
                    "stage: 's3://bucket/new'}")  # fmt: skip
    done = CliRunner().invoke(cli, ["submit", *words, str(file)])
    assert done.exit_code == (1 if words == ["--diff"] else 0), done.output
    told = f"--- live/job/{name}" if words == ["--diff"] else f"job/{name}"
    assert told in done.stdout
    assert words == ["--diff"] or "deleted" in done.stdout


@pytest.mark.parametrize("condition", ["", "Complete", "Failed"])
def test_a_copy_with_other_means_takes_over(cluster: JobsCluster, condition: str) -> None:
    submit(cluster.client(), staged())
    if condition:
        end(cluster, condition)
    assert changes(submit(cluster.client(), staged(memory="8Gi")))["job"] == "deleted created"
    assert len(copies(cluster)) == 1


def test_a_job_that_trains_keeps_its_data(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())
    end(cluster)
    cluster.annotate(begun="true")
    with pytest.raises(JobStateError, match="hvd-elastic suspend bert, submit it, then hvd-elastic resume bert"):
        submit(cluster.client(), staged("s3://bucket/new"))
    with pytest.raises(JobStateError, match="bert trains"):
        submit(cluster.client(), staged(rearrange=["sort"]))
    assert waited_for(cluster) == "s3://bucket/old"
    assert copies(cluster) == ["s3://bucket/old"]


def test_a_suspended_job_gets_another_data_set(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())
    end(cluster)
    cluster.annotate(begun="true")
    cluster.change_job(spec={"runPolicy": {"suspend": True}})
    submit(cluster.client(), staged("s3://bucket/new"))
    assert waited_for(cluster) == "s3://bucket/new"
    assert copies(cluster) == ["s3://bucket/new"]


def test_data_that_is_trained_on_is_not_copied_again(cluster: JobsCluster) -> None:
    """The bucket may have changed, and the copy would bring that under the training."""
    submit(cluster.client(), staged())
    end(cluster)
    cluster.annotate(begun="true")
    assert "job" not in changes(submit(cluster.client(), staged(threads=32)))
    assert copies(cluster) == ["s3://bucket/old"]
    cluster.objects[BATCH].clear()  # its time is over
    assert "job" not in changes(submit(cluster.client(), staged()))
    assert copies(cluster) == []


def test_a_copy_that_failed_after_all_is_replaced(cluster: JobsCluster) -> None:
    """A suspended job that had trained was given another data set, whose copy needs more memory."""
    submit(cluster.client(), staged())
    cluster.annotate(begun="true")
    end(cluster, "Failed")
    assert changes(submit(cluster.client(), staged(memory="8Gi")))["job"] == "deleted created"


def test_a_description_without_stage_leaves_the_copy_alone(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())
    submit(cluster.client(), spec(data="claim"))
    assert copies(cluster) == ["s3://bucket/old"]


def test_who_may_not_delete_the_old_copy_begins_no_new_one(cluster: JobsCluster) -> None:
    submit(cluster.client(), staged())

    def fault(request: Request) -> None:
        if request.method == "DELETE":
            raise Status(403)

    cluster.fault = fault
    with pytest.raises(ForbiddenError):
        submit(cluster.client(), staged("s3://bucket/new"))
    assert copies(cluster) == ["s3://bucket/old"]
    assert waited_for(cluster) == "s3://bucket/old"
