"""A sweep on a real cluster: its runner gives turns while nobody is there, and the table says which value is best."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.mpijob.contract import LABEL_SWEEP
from testbed.cluster import jobs
from testbed.cluster.jobs import PACED
from testbed.cluster.site import RESULTS, Site, owned_by_nobody
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import call, told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

GRID = ("--grid", "lr=0.000001,0.1", "--grid", "epochs=8", "--at-once", "1")
"""The worse value comes first."""


@pytest.mark.core
def test_two_jobs_one_after_the_other(cluster: Site, namespace: Kubectl, tmp_path: Path) -> None:
    jobs.priority_classes(cluster)
    jobs.share_results(cluster, namespace)
    description = jobs.describe(
        cluster, namespace, "toy", PACED, workers=jobs.workers((1, 1, 1)), output={"claim": RESULTS}
    )
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(description))

    call(namespace, "sweep", str(path), *GRID)
    assert [row["state"] for row in _rows(namespace)].count("queued") == 1
    waiting.until("the runner runs", lambda: _runner_phases(namespace) == ["Running"], within_seconds=60)
    call(namespace, "sweep", str(path), *GRID)

    waiting.until(
        "both jobs have ended",
        lambda: [row["state"] for row in _rows(namespace)] == ["succeeded"] * 2,
        within_seconds=240,
        every_seconds=1,
        seen=lambda: f"{_rows(namespace)}\n{namespace('get', 'mpijobs,pods')}",
    )
    best, worst = _rows(namespace)
    assert [best["point"]["lr"], worst["point"]["lr"]] == ["0.1", "0.000001"]
    assert best["metrics"]["loss"] < worst["metrics"]["loss"]
    for row in (best, worst):
        said = namespace("logs", f"job/{row['job']}-launcher", "--container=launcher", "--tail=50")
        assert f"steps {row['step']} accuracy {row['metrics']['accuracy']:.4f}" in said, "the values of its end"
    # RFC 3339 times of one zone compare as text. A Job that was suspended starts when it is resumed.
    ended = namespace.get("mpijob", worst["job"])["status"]["completionTime"]
    assert ended <= namespace.get("job.batch", f"{best['job']}-launcher")["status"]["startTime"]
    header, first, _ = call(namespace, "sweep", "status", "toy").splitlines()
    assert header.split() == ["LR", "EPOCHS", "STATE", "STEP", "LOSS", "JOB"]
    assert first.split()[:3] == ["0.1", "8", "succeeded"]
    waiting.until("the runner ends with the last job", lambda: _runner_phases(namespace) == ["Succeeded"],
                  within_seconds=60)  # fmt: skip

    call(namespace, "sweep", "delete", "toy", "--yes")
    waiting.until(
        "nothing is left behind",
        lambda: not owned_by_nobody(namespace),
        within_seconds=60,
        seen=lambda: str(owned_by_nobody(namespace)),
    )


def _rows(kubectl: Kubectl) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = told(kubectl, "sweep", "status", "toy")["rows"]
    return rows


def _runner_phases(kubectl: Kubectl) -> list[str]:
    runners = kubectl.list("pods", selector=f"{LABEL_SWEEP}=toy,batch.kubernetes.io/job-name=toy-sweep")
    return [pod["status"]["phase"] for pod in runners]
