"""A job whose checkpoints are in a server of another cloud goes on there, and its data set comes from there."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.stores.location import Location
from testbed import azure_server, gcs_server
from testbed.cluster import jobs
from testbed.cluster.site import Site, share
from testbed.cluster.standing import SIZE, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

BUCKET: Final = "team-bucket"

Serving = Callable[[str, Kubectl], AbstractContextManager[dict[str, Any]]]


@contextlib.contextmanager
def google(address: str, kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """A server on this address, and the keys of a job whose checkpoints go there."""
    with gcs_server.gcs_server(address) as (_, port):
        endpoint = f"http://{address}:{port}"
        gcs_server.create_bucket(endpoint, BUCKET)
        checkpoint = {"url": f"gs://{BUCKET}/checkpoints", "every": 5, "endpoint": endpoint}
        yield {"checkpoint": checkpoint, "network": {"storage_ports": [port]}}


@contextlib.contextmanager
def azure(address: str, kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """The same, and the Secret by which the job gets in."""
    with azure_server.azure_server(address) as (_, port):
        endpoint = f"http://{address}:{port}/{azure_server.ACCOUNT}"
        azure_server.create_container(endpoint, BUCKET)
        kubectl("create", "secret", "generic", "account", f"--from-literal=AZURE_STORAGE_KEY={azure_server.KEY}")
        checkpoint = {"url": f"az://{BUCKET}/checkpoints", "every": 5, "endpoint": endpoint}
        yield {"checkpoint": checkpoint, "secrets": ["account"], "network": {"storage_ports": [port]}}


@pytest.mark.parametrize("serving", [google, azure])
def test_a_job_goes_on_where_it_was(cluster: Site, namespace: Kubectl, timeline: Timeline, serving: Serving) -> None:
    with serving(cluster.local().plane.subnets.gateway, namespace) as keys:
        job = start(cluster, namespace, "launch", **keys)
        job.wait_size(SIZE)
        job.wait_steps(10)

        timeline.mark("deleted and applied again")
        namespace("delete", "mpijob", job.name, "--wait=true")
        waiting.until(
            "every pod is gone",
            lambda: not job.pods(Role.WORKER) and not job.pods(Role.LAUNCHER),
            within_seconds=60,
            seen=job.describe,
        )
        done = job.account.steps[-1]["step"]
        namespace("apply", "-f", str(job.shared / "manifests.yaml"))
        back = timeline.mark("applied again")
        job.wait_size(SIZE, since=back)
        again = job.account.since(back).steps[0]["step"]
        assert 1 < again <= done + 1
        assert not job.account.skipped()


@pytest.mark.parametrize("serving", [google, azure])
def test_a_data_set_is_staged(
    cluster: Site, namespace: Kubectl, serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", azure_server.KEY)
    jobs.priority_classes(cluster)
    data = share(cluster, namespace, "data")
    wanted = {f"{number % 3}/{number}": b"data" * number for number in range(1, 30)}
    with serving(cluster.local().plane.subnets.gateway, namespace) as keys:
        endpoint = keys["checkpoint"]["endpoint"]
        source = keys["checkpoint"]["url"].replace("/checkpoints", "/set")
        store = Location.parse(source, endpoint=endpoint).open()
        assert all(store.create(key, content) for key, content in wanted.items())
        store.close()
        description = jobs.describe(
            cluster,
            namespace,
            "staged",
            ["true"],
            data={"claim": "data", "mount": "/data"},
            stage={"source": source, "into": "/data/set", "endpoint": endpoint, "cpu": "100m"},
            secrets=keys.get("secrets", []),
        )
        path = tmp_path / "staged.yaml"
        path.write_text(yaml.safe_dump(description))
        call(namespace, "stage", str(path), "--wait")
    assert {key: (data / "set" / key).read_bytes() for key in wanted} == wanted
    assert '"unverified": 0' in (data / "set" / "_SUCCESS").read_text()


@pytest.fixture
def unregistered_driver(cluster: Site) -> Iterator[None]:
    """Of Cloud Storage FUSE, as the cluster knows it; no kubelet does."""
    name = "gcsfuse.csi.storage.gke.io"
    labels = {"security.kubernetes.io/csi-ephemeral-volume-profile": "restricted"}
    driver = {"metadata": {"name": name, "labels": labels}, "spec": {"volumeLifecycleModes": ["Ephemeral"]}}
    whole = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", **driver}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(whole))
    yield
    cluster.kubectl("delete", "csidriver", name)


def test_a_bucket_that_cannot_be_mounted_is_told(
    cluster: Site, namespace: Kubectl, unregistered_driver: None, tmp_path: Path
) -> None:
    jobs.priority_classes(cluster)
    description = jobs.describe(cluster, namespace, "held", ["true"], output=f"gs://{BUCKET}/results")
    path = tmp_path / "held.yaml"
    path.write_text(yaml.safe_dump(description))
    call(namespace, "submit", str(path))

    def told() -> str:
        return call(namespace, "status", "held", exit_code=None)

    waiting.until(
        "status names the driver that the node lacks",
        lambda: re.search(r"FailedMount: .*gcsfuse\.csi\.storage\.gke\.io not found", told()),
        within_seconds=90,
        seen=told,
    )
