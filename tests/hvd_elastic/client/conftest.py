"""A fake API server over real HTTP, and a kubeconfig that leads to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from testbed.kube_api import KubeApi
from tests.hvd_elastic.client.report.objects import COLLECTIONS


@pytest.fixture
def served() -> Iterator[KubeApi]:
    api = KubeApi()
    for path in COLLECTIONS:
        api.objects.setdefault(path, {})
    yield api
    api.stop()


@pytest.fixture
def cluster(served: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
    path = served.kubeconfig(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return ClusterClient.connect(context="here")
