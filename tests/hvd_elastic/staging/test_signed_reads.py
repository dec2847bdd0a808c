"""Reads without boto3's own cost are the same reads."""

import os
from typing import Any

import pytest

from hvd_elastic.staging.object_source import ObjectSource
from hvd_elastic.staging.source_manifest import SourceObject
from hvd_elastic.staging.stage_errors import ChangedObjectError
from tests.hvd_elastic.staging.test_stage import Put

KEYS = ("a b+c%2F&=?#", "~tilde/$x;:@,'()!*", "\u00fcml\u00e4ut/\u4e2d\u6587", "%41")
Asked = list[str]


@pytest.fixture
def source(endpoint: str, bucket: str) -> ObjectSource:
    return ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=2)


@pytest.fixture
def asked(source: ObjectSource) -> Asked:
    """The objects for which boto3's own way was gone."""
    found: Asked = []

    def note(params: dict[str, str], **_: object) -> None:
        found.append(params["Key"])

    source._client.meta.events.register("before-parameter-build.s3.GetObject", note)
    return found


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
    source._signed._bucket_url = "http://127.0.0.1:1"
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
    assert source._signed.read("set/a", etag=one.etag, offset=0, length=1) is None
