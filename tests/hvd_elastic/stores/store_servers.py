"""Real servers behind the fault-injecting proxy: one of each for the session, with a bucket for each test."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from testbed import azure_server
from testbed.gcs_server import create_bucket, gcs_server
from testbed.s3_server import s3_server
from tests.trainer.checkpoint.proxy import Faults, proxy

STORES: Final = ("file", "s3", "gcs", "azure")
OTHER_CLOUDS: Final = [pytest.param(cloud, marks=pytest.mark.thorough) for cloud in ("gcs", "azure")]
"""As parameters: what holds for one cloud holds for them, and `make test` tries each promise on one."""


@pytest.fixture(scope="session")
def s3_proxy() -> Iterator[tuple[str, Faults]]:
    with s3_server() as address, proxy(address) as started:
        yield started


@pytest.fixture
def faults(s3_proxy: tuple[str, Faults]) -> Iterator[Faults]:
    s3_proxy[1].clear()
    yield s3_proxy[1]
    s3_proxy[1].clear()


@pytest.fixture(scope="session")
def s3_client(s3_proxy: tuple[str, Faults]) -> Any:
    from hvd_elastic.stores.s3_requests import make_client

    return make_client(endpoint=s3_proxy[0], region="us-east-1", threads=4)


@pytest.fixture
def s3_url(s3_proxy: tuple[str, Faults], s3_client: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL whose stores share one client, because creating a client takes a third of a second."""
    monkeypatch.setattr("hvd_elastic.stores.s3_requests.make_client", lambda **_: s3_client)
    bucket = f"b{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=bucket)
    return f"s3://{bucket}/jobs/a?endpoint={s3_proxy[0]}&region=us-east-1&part_mib=5&threads=3"


@pytest.fixture(scope="session")
def gcs_proxy() -> Iterator[tuple[str, Faults]]:
    with gcs_server() as address, proxy(address) as started:
        yield started


@pytest.fixture
def gcs_faults(gcs_proxy: tuple[str, Faults]) -> Iterator[Faults]:
    gcs_proxy[1].clear()
    yield gcs_proxy[1]
    gcs_proxy[1].clear()


@pytest.fixture
def gcs_url(gcs_proxy: tuple[str, Faults], gcs_faults: Faults) -> str:
    bucket = f"b{uuid.uuid4().hex}"
    create_bucket(gcs_proxy[0], bucket)
    return f"gs://{bucket}/jobs/a?endpoint={gcs_proxy[0]}&part_mib=5&threads=3"


@pytest.fixture(scope="session")
def azure_proxy() -> Iterator[tuple[str, Faults]]:
    with azure_server.azure_server() as address, proxy(address) as started:
        yield started


@pytest.fixture
def azure_faults(azure_proxy: tuple[str, Faults]) -> Iterator[Faults]:
    azure_proxy[1].clear()
    yield azure_proxy[1]
    azure_proxy[1].clear()


@pytest.fixture
def azure_url(azure_proxy: tuple[str, Faults], azure_faults: Faults, monkeypatch: pytest.MonkeyPatch) -> str:
    container, endpoint = f"b{uuid.uuid4().hex}", f"{azure_proxy[0]}/{azure_server.ACCOUNT}"
    azure_server.create_container(endpoint, container)
    azure_faults.clear()
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azure_server.signature())
    return f"az://{container}/jobs/a?endpoint={endpoint}&part_mib=5&threads=3"


@pytest.fixture(params=["file", "s3", *OTHER_CLOUDS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each kind of store: their guarantees are the same."""
    own = f"file://{tmp_path}/checkpoints?part_mib=5&threads=3"
    return own if request.param == "file" else str(request.getfixturevalue(f"{request.param}_url"))
