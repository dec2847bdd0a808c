from pathlib import Path

import pytest

from hvd_elastic.client.operations.submission import submit
from testbed.s3_server import bucket, client, endpoint, put
from tests.hvd_elastic.client.operations.conftest import cluster
from tests.hvd_elastic.client.operations.jobs_cluster import JobsCluster, spec

__all__ = ["bucket", "client", "cluster", "endpoint", "job", "put"]


@pytest.fixture
def job(cluster: JobsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobsCluster:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "config")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cluster.objects.setdefault("/apis/batch/v1/namespaces/default/jobs", {})
    cluster.objects.setdefault("/api/v1/namespaces/default/events", {})
    submit(cluster.client(), spec(batch=512))
    return cluster
