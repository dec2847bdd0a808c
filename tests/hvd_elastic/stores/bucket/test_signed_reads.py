"""Reads without boto3's own cost are the same reads."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import CredentialRetrievalError
from botocore.httpsession import get_cert_path

from hvd_elastic.stores.bucket import boto3_requests, signed_reads
from hvd_elastic.stores.bucket.listed_page import SourceObject
from hvd_elastic.stores.bucket.object_source import ObjectSource
from hvd_elastic.stores.errors import ChangedObjectError
from testbed.kube.certificates import Authority
from testbed.s3_server import Put

KEYS = ("a b+c%2F&=?#", "~tilde/$x;:@,'()!*", "\u00fcml\u00e4ut/\u4e2d\u6587", "%41")
LEFT_TO_BOTO3 = "AWS_USE_DUALSTACK_ENDPOINT"
Asked = list[str]


@pytest.fixture(params=["environment", "boto3"])
def source(endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ObjectSource:
    """Whoever finds out how the bucket is reached."""
    if request.param == "boto3":
        monkeypatch.setenv(LEFT_TO_BOTO3, "false")
    return ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=2)


@pytest.fixture
def asked(source: ObjectSource) -> Asked:
    return reads_of_boto3(source)


@pytest.fixture
def with_tls(endpoint: str, tmp_path: Path) -> Iterator[tuple[str, Authority]]:
    """The same buckets at another URL, and who vouches for it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    authority = Authority.create(tmp_path / "authority")
    pair = authority.issue("server", "server", answers_to=["127.0.0.1"])
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=(str(pair.certificate), str(pair.key)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", authority
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reads_of_boto3(source: ObjectSource) -> Asked:
    """The objects for which boto3's own way was gone."""
    found: Asked = []

    def note(params: dict[str, str], **_: object) -> None:
        found.append(params["Key"])

    source.boto3.client.meta.events.register("before-parameter-build.s3.GetObject", note)
    return found


def lead_astray(source: ObjectSource) -> None:
    """Have reads go where nobody answers."""
    assert source._reads._access is not None
    address = replace(source._reads._access.address, url="http://127.0.0.1:1/b")
    source._reads.use(replace(source._reads._access, address=address))


def listed(source: ObjectSource) -> dict[str, SourceObject]:
    return {one.key: one for one in source.objects()}


@pytest.mark.parametrize("key", KEYS)
def test_any_key_is_read_without_boto3(source: ObjectSource, asked: Asked, put: Put, key: str) -> None:
    data = os.urandom(1000)
    put(key, data)
    put(f"{key}-empty", b"")
    objects = listed(source)
    assert source.read(objects[key], 0, 1000) == data
    assert source.read(objects[key], 10, 20) == data[10:30]
    assert source.read(objects[f"{key}-empty"], 0, 0) == b""
    assert asked == []


def test_what_was_not_listed_is_left_to_boto3(source: ObjectSource, asked: Asked, put: Put) -> None:
    put("a", b"1")
    one = SourceObject(key="a", size_bytes=1, etag="c4ca4238a0b923820dcc509a6f75849b")
    assert source.read(one, 0, 1) == b"1"
    assert asked == ["set/a"]


@pytest.mark.core
@pytest.mark.process
def test_threads_of_a_new_process_read_at_once(endpoint: str, bucket: str, put: Put, tmp_path: Path) -> None:
    """What is imported lazily is whole before they begin."""
    for number in range(32):
        put(str(number), b"1")
    command = [sys.executable, "-m", "hvd_elastic.cli", "stage-copier", "--source", f"s3://{bucket}/set"]
    for turn in range(3):
        folder = tmp_path / str(turn)
        subprocess.run([*command, "--into", str(folder), "--endpoint", endpoint], check=True, timeout=120)
        assert len([*folder.glob("[0-9]*")]) == 32


@pytest.mark.parametrize("replaced", [True, False])
def test_what_has_changed_is_an_error(
    source: ObjectSource, asked: Asked, put: Put, client: Any, bucket: str, replaced: bool
) -> None:
    put("a", b"1")
    put("b", b"2")
    objects = listed(source)
    put("a", b"3") if replaced else client.delete_object(Bucket=bucket, Key="set/a")
    with pytest.raises(ChangedObjectError):
        source.read(objects["a"], 0, 1)
    assert source.read(objects["b"], 0, 1) == b"2"
    assert asked == ["set/a"]


def test_a_connection_that_breaks_is_left_to_boto3(source: ObjectSource, asked: Asked, put: Put) -> None:
    put("a", b"1")
    objects = listed(source)
    lead_astray(source)
    assert source.read(objects["a"], 0, 1) == b"1"
    assert asked == ["set/a"]


def test_without_credentials_nothing_is_signed(
    endpoint: str, bucket: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    source = ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=2)
    one = SourceObject(key="a", size_bytes=1, etag="1")
    assert source._reads.read("set/a", etag=one.etag, offset=0, length=1) is None


def test_a_server_that_never_answers_is_given_up(source: ObjectSource, asked: Asked, put: Put) -> None:
    put("a", b"1")
    objects = listed(source)
    lead_astray(source)
    for _ in range(signed_reads._MOST_FAILURES):
        assert source._reads._access
        assert source.read(objects["a"], 0, 1) == b"1"
    assert source._reads._access is None
    assert asked == ["set/a"] * signed_reads._MOST_FAILURES


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL_S3", None),
        ("AWS_ENDPOINT_URL", None),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("AWS_S3_EXPRESS", "true"),
    ],
)
def test_the_environment_says_what_it_says_to_boto3(
    endpoint: str, bucket: str, put: Put, monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    put("a", b"1")
    monkeypatch.setenv(name, value or endpoint)
    source = ObjectSource(f"s3://{bucket}/set", endpoint=endpoint if value else None, threads=2)
    asked = reads_of_boto3(source)
    assert source.read(listed(source)["a"], 0, 1) == b"1"
    assert asked == []


@pytest.mark.distribution
@pytest.mark.parametrize("left_to_boto3", [False, True])
def test_an_authority_of_ones_own_is_one_of_several_in_a_file(
    with_tls: tuple[str, Authority],
    bucket: str,
    put: Put,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left_to_boto3: bool,
) -> None:
    if left_to_boto3:
        monkeypatch.setenv(LEFT_TO_BOTO3, "false")
    put("a", b"1")
    url, authority = with_tls
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(get_cert_path(True)).read_bytes() + authority.root.read_bytes())
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    source = ObjectSource(f"s3://{bucket}/set", endpoint=url, threads=2)
    objects = listed(source)
    assert (source._opened is not None) == left_to_boto3
    asked = reads_of_boto3(source)
    assert source.read(objects["a"], 0, 1) == b"1"
    assert asked == []


class Keys:
    """Credentials that are asked for anew each time, and may be gone."""

    def __init__(self) -> None:
        self.asked = 0
        self.gone = False

    def get_frozen_credentials(self) -> SimpleNamespace:
        self.asked += 1
        if self.gone:
            raise CredentialRetrievalError(provider="test", error_msg="gone")
        return SimpleNamespace(access_key=f"key{self.asked}", secret_key="secret", token=None)


def test_credentials_that_are_about_to_end_are_asked_for_again(
    endpoint: str, bucket: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a", b"1")
    monkeypatch.setenv(LEFT_TO_BOTO3, "false")
    source = ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=2)
    asked, objects = reads_of_boto3(source), listed(source)
    source.boto3.credentials = keys = Keys()
    for _ in range(3):
        assert source.read(objects["a"], 0, 1) == b"1"
    assert keys.asked == 1
    source._reads._opened = None
    monkeypatch.setattr(boto3_requests, "_CREDENTIALS_LAST", timedelta(seconds=1))
    while keys.asked < 4:  # not more often than each tenth of a second
        assert source.read(objects["a"], 0, 1) == b"1"
    assert asked == []
    keys.gone = True
    while not asked:
        assert source.read(objects["a"], 0, 1) == b"1"
