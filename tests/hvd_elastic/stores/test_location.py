import os
import subprocess
import sys

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT
from hvd_elastic.stores.location import LIBRARIES, Location
from hvd_elastic.trainer.checkpoint import CheckpointUrlError, open_checkpoints
from testbed.local import forkserver


def test_an_object_store() -> None:
    location = Location.parse("s3://bucket/team/fashion/?endpoint=http://minio:9000&region=eu-1&part_mib=16&threads=2")
    assert (location.bucket, location.path, location.endpoint) == ("bucket", "team/fashion", "http://minio:9000")
    assert (location.region, location.part_mib, location.threads) == ("eu-1", 16, 2)


def test_a_bucket_of_google() -> None:
    location = Location.parse("gs://bucket/team/fashion/?endpoint=https://own.p.googleapis.com&threads=2")
    assert (location.scheme, location.bucket, location.path) == ("gs", "bucket", "team/fashion")
    assert location.endpoint == "https://own.p.googleapis.com"


@pytest.mark.parametrize(
    ("url", "account_url"),
    [
        ("az://container/team/fashion?account=account1", "https://account1.blob.core.windows.net"),
        ("az://container/team/fashion?endpoint=http://azurite:10000/dev", "http://azurite:10000/dev"),
        ("abfss://container@account1.dfs.core.windows.net/team/fashion/", "https://account1.blob.core.windows.net"),
        ("abfs://container@account1/team/fashion", "https://account1.blob.core.windows.net"),
        (
            "https://account1.blob.core.chinacloudapi.cn/container/team/fashion",
            "https://account1.blob.core.chinacloudapi.cn",
        ),
    ],
)
def test_a_container_of_azure(url: str, account_url: str) -> None:
    location = Location.parse(url)
    assert (location.scheme, location.bucket, location.path) == ("az", "container", "team/fashion")
    assert location.endpoint == account_url


def test_the_account_of_a_container_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account1")
    assert Location.parse("az://container/team").endpoint == "https://account1.blob.core.windows.net"
    monkeypatch.setenv("HVD_ELASTIC_STORE_ENDPOINT", "http://azurite:10000/dev")
    assert Location.parse("az://container/team").endpoint == "http://azurite:10000/dev"


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hvd_elastic.stores.gcs_requests", None)
    with pytest.raises(CheckpointUrlError, match=r"pip install 'hvd-elastic\[gcs\]'"):
        Location.parse("gs://bucket/x").open()


def test_a_shared_file_system() -> None:
    location = Location.parse("file:///output/my%20job")
    assert (location.scheme, location.path) == ("file", "/output/my job")


@pytest.mark.parametrize(
    ("url", "way_out"),
    [
        ("ftp://bucket/x", "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///path"),
        ("az://container/x", "name the account"),
        ("az://?account=a", "name a container"),
        ("abfss://container/x", "name an account of Azure: abfss://container@account.dfs"),
        ("https://example.com/container/x", "name an account of Azure: https://account.blob"),
        ("https://account1.blob.core.windows.net/container", "a prefix of this job's own"),
        ("gs:///prefix", "name a bucket: gs://bucket/prefix"),
        ("gs://bucket", "a prefix of this job's own: gs://bucket/prefix"),
        ("gs://bucket/x?region=y", "unknown option 'region'"),
        ("s3:///prefix", "name a bucket"),
        ("s3://bucket", "a prefix of this job's own"),
        ("file://output/x", "three slashes"),
        ("file:///", "three slashes"),
        ("s3://b/p?part_mib=4", "at least 5"),
        ("s3://b/p?threads=many", "at least 1"),
        ("s3://b/p?retries=3", "unknown option 'retries'"),
        ("file:///x?endpoint=y", "unknown option 'endpoint'"),
        ("/path", "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///path"),
    ],
)
def test_the_error_about_a_bad_url_names_the_way_out(url: str, way_out: str) -> None:
    with pytest.raises(CheckpointUrlError, match=way_out):
        Location.parse(url)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(CheckpointUrlError) as caught:
        open_checkpoints("s3://?threads=0", job="a", incarnation="", interval_seconds=0, interval_steps=0, keep=0)
    assert len(str(caught.value).splitlines()) == 6
    assert caught.value.exit_code == 2


@pytest.mark.core
@pytest.mark.process
def test_the_file_store_needs_no_library_of_a_cloud() -> None:
    script = (
        "import sys; from hvd_elastic.stores.location import Location; Location.parse('file:///x').open();"
        "sys.exit(bool({'boto3', 'azure.core', 'google.cloud.storage'} & set(sys.modules)))"
    )
    assert subprocess.run([*forkserver.python(), "-c", script], check=False).returncode == 0


@pytest.mark.process
@pytest.mark.parametrize("url", ["", "s3://bucket/a", "gs://bucket/a", "az://container/a"])
def test_a_worker_imports_the_library_of_its_own_store_alone(url: str) -> None:
    """And its PID 1 none."""
    clouds = {"boto3", "google.cloud.storage", "azure.identity", "azure.storage.blob", "obstore"}
    script = (
        f"import sys, hvd_elastic.cli.pods.worker; clouds = {clouds}; print(clouds & sys.modules.keys() or '')\n"
        "from hvd_elastic.worker.standby.standby import import_what_comes_next\n"
        "import_what_comes_next(); print(*clouds & sys.modules.keys())"
    )
    environment = {**os.environ, ENV_CHECKPOINT: url}
    command = [*forkserver.python(), "-c", script]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    first, then, _ = done.stdout.split("\n")
    assert first == ""
    assert set(then.split()) == clouds & set(LIBRARIES.get(url.partition(":")[0], ()))
