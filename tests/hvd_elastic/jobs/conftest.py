"""A fake API server over real HTTP, and a kubeconfig that leads to it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.jobs.cluster_client import ClusterClient
from tests.discovery.kubeapi import KubeApi
from tests.hvd_elastic.jobs.report.objects import COLLECTIONS


@pytest.fixture
def served() -> Iterator[KubeApi]:
    api = KubeApi()
    for path in COLLECTIONS:
        api.objects.setdefault(path, {})
    yield api
    api.stop()


@pytest.fixture
def cluster(served: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{served.port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
    }
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return ClusterClient.connect(context="here")
